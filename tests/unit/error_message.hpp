// SPDX-License-Identifier: Apache-2.0
// What a failing call says.
#pragma once

#include <functional>
#include <string>

#include "core/base/error.hpp"

#include <doctest/doctest.h>

namespace limbeck::testing {

// The text of the Error that `body` throws, which must be of the fault `expected`. Without an
// Error the test fails.
inline std::string message_of(const std::function<void()>& body, Fault expected = Fault::kData) {
  try {
    body();
  } catch (const Error& error) {
    CHECK(error.fault() == expected);
    return error.what();
  }
  FAIL("nothing was thrown");
  return "";
}

// Whether `part` is in `text`; a failing check then shows the text.
inline bool has(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

}  // namespace limbeck::testing
