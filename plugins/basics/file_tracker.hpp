// SPDX-License-Identifier: Apache-2.0
// What trackers that write files share.
#pragma once

#include <chrono>
#include <stdexcept>
#include <utility>

#include <limbeck/error.hpp>

namespace basics {

// Seconds since 1970.
inline double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Runs `write`. A std::runtime_error of it becomes an lb::Error of code LB_UNAVAILABLE: what could
// not be written is kept by the host and offered again.
template <class Write>
void or_later(Write&& write) {
  try {
    std::forward<Write>(write)();
  } catch (const lb::Error&) {
    throw;
  } catch (const std::runtime_error& error) {
    throw lb::Error(LB_UNAVAILABLE, error.what());
  }
}

}  // namespace basics
