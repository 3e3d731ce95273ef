// SPDX-License-Identifier: Apache-2.0
// Building and comparing text.
#pragma once

#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/export.hpp"

namespace limbeck {

// All arguments written one after the other with operator<<.
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// "a, b, c"
LIMBECK_API std::string join(const std::vector<std::string>& items,
                             std::string_view between = ", ");

// The candidate that a misspelt `word` most likely means: the nearest in Damerau-Levenshtein
// distance, if that is at most max(2, length / 3); else empty.
LIMBECK_API std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

// Seconds of "1d4h30m5s", in this order, each part an integer; 0 of "". Empty for anything else.
LIMBECK_API std::optional<double> seconds_of(std::string_view text);

// A double in the shortest form that reads back to the same value.
LIMBECK_API std::string shortest(double value);

}  // namespace limbeck
