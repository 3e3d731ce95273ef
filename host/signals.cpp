// SPDX-License-Identifier: Apache-2.0
#include "host/signals.hpp"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "core/plugin/host_table.hpp"

namespace limbeck::host {
namespace {

constexpr int64_t kSecondWithin = 5;  // seconds
constexpr int kInterrupted = 130;

std::atomic<int64_t> interrupted_at{-kSecondWithin - 1};
static_assert(std::atomic<int64_t>::is_always_lock_free, "a signal handler stores to it");

// Only what is async-signal-safe may happen here.
void on_signal(int signal) {
  if (signal == SIGINT) {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec - interrupted_at.exchange(now.tv_sec) <= kSecondWithin) {
      _exit(kInterrupted);
    }
  }
  request_stop(LB_STOP_SOON);
}

void install(int signal, void (*handler)(int)) {
  struct sigaction action {};
  // Who started this with nohup wants it to go on.
  if (signal == SIGHUP && sigaction(signal, nullptr, &action) == 0 &&
      action.sa_handler == SIG_IGN) {
    return;
  }
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

}  // namespace

void watch_signals() {
  // SIGUSR1 is what batch systems send before a job's time is over.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    install(signal, on_signal);
  }
}

void ignore_broken_pipes() { install(SIGPIPE, SIG_IGN); }

}  // namespace limbeck::host
