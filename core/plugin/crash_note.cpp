// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/crash_note.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "core/base/text.hpp"

namespace limbeck {
namespace {

// What the signal handler writes: it may not allocate.
std::array<char, 1024> crash_text;
size_t crash_text_size = 0;

extern "C" void write_crash_text(int signal) {
  if (write(STDERR_FILENO, crash_text.data(), crash_text_size) < 0) {
    // There is nobody to tell.
  }
  raise(signal);  // SA_RESETHAND: this time it ends the process
}

}  // namespace

CrashNote::CrashNote(const std::string& where) {
  const std::string line = cat("limbeck: the process crashed ", where, "\n");
  crash_text_size = std::min(line.size(), crash_text.size());
  std::memcpy(crash_text.data(), line.data(), crash_text_size);
  struct sigaction action {};
  action.sa_handler = write_crash_text;
  action.sa_flags = SA_RESETHAND | SA_NODEFER;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &action, &before_[i]);
  }
}

CrashNote::~CrashNote() {
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &before_[i], nullptr);
  }
}

}  // namespace limbeck
