// SPDX-License-Identifier: Apache-2.0
// The two shapes of an error: limbeck::Error inside the host, lb_status at the C boundary.
// An Error that travels through a plugin and comes back is the same Error again, with the frames
// that were added on the way.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <limbeck/abi.h>

#include "core/base/error.hpp"
#include "core/base/export.hpp"

// Opaque to plugins. Made by make_status() and its like, destroyed by drop_status() or check().
struct lb_status {
  lb_code code = LB_UNKNOWN;
  std::string message;
  std::vector<std::string> frames;  // innermost first
  // Of an Error of the host that crossed the boundary; else decided by the code.
  std::optional<limbeck::Fault> fault;
  std::string hint;
};

namespace limbeck {

// Never NULL: without memory, one static status of code LB_HOST_OOM is returned. [any]
LIMBECK_API lb_status* make_status(lb_code code, std::string message) noexcept;
LIMBECK_API lb_status* to_status(const Error& error) noexcept;
// Of the exception that is being handled: call it in a catch block only. Knows nothing of
// libtorch's exceptions beyond their what().
LIMBECK_API lb_status* status_of_current_exception() noexcept;
// The same for one that left a function of a plugin.
LIMBECK_API lb_status* status_of_escaped_exception() noexcept;
// Adds "while ..." and returns the same status. NULL stays NULL.
LIMBECK_API lb_status* add_frame(lb_status* status, std::string frame) noexcept;
LIMBECK_API void drop_status(lb_status* status) noexcept;  // NULL is fine

// Which part of the outside world an error of this code is about.
LIMBECK_API Fault fault_of(lb_code code);
LIMBECK_API lb_code code_of(Fault fault);

// Takes the status over, which is not NULL.
LIMBECK_API Error to_error(lb_status* status);
// Throws the status, which it takes over, as an Error with one more frame; NULL: does nothing.
LIMBECK_API void check(lb_status* status, std::string frame = "");

// Calls a function of a plugin, which returns an lb_status*, and throws what it returns as an Error
// with the frame that `frame()` makes. An exception that leaves the function breaks the ABI's
// contract: it is told as an error.
template <class F, class Frame>
void call_plugin(F&& function, const Frame& frame) {
  lb_status* status = nullptr;
  try {
    status = std::forward<F>(function)();
  } catch (...) {
    status = status_of_escaped_exception();
  }
  if (status != nullptr) {
    check(status, frame());
  }
}

// The body of a function that a plugin calls: no exception leaves it.
template <class F>
lb_status* guard(F&& body) noexcept {
  try {
    std::forward<F>(body)();
    return nullptr;
  } catch (...) {
    return status_of_current_exception();
  }
}

}  // namespace limbeck
