// SPDX-License-Identifier: Apache-2.0
// If this process crashes, it says in whose code.
#pragma once

#include <array>
#include <csignal>
#include <string>

#include "core/base/export.hpp"

namespace limbeck {

// While one lives, a signal that ends the process (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT) first
// writes "limbeck: the process crashed <where>" to standard error. They do not nest. [control]
class LIMBECK_API CrashNote {
 public:
  explicit CrashNote(const std::string& where);
  ~CrashNote();
  CrashNote(const CrashNote&) = delete;
  CrashNote& operator=(const CrashNote&) = delete;

 private:
  static constexpr std::array<int, 5> kSignals = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

  std::array<struct sigaction, kSignals.size()> before_{};
};

}  // namespace limbeck
