// SPDX-License-Identifier: Apache-2.0
#include "host/signals.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "core/plugin/host_table.hpp"

namespace {

// The exit code of a process that watches signals, sends itself these two, and then exits with
// what it was asked: an lb_stop.
int code_after(int first, int second) {
  const pid_t child = fork();
  if (child == 0) {
    limbeck::host::watch_signals();
    limbeck::host::ignore_broken_pipes();
    raise(first);
    raise(second);
    _exit(limbeck::stop_requested());
  }
  REQUIRE(child > 0);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("signals: an interrupt and a termination ask the run to stop soon") {
  CHECK(code_after(SIGINT, SIGPIPE) == LB_STOP_SOON);
  CHECK(code_after(SIGTERM, SIGPIPE) == LB_STOP_SOON);
  CHECK(code_after(SIGTERM, SIGTERM) == LB_STOP_SOON);
}

TEST_CASE("signals: a second interrupt soon after the first ends the process") {
  CHECK(code_after(SIGINT, SIGINT) == 130);
}

TEST_CASE("signals: a reader that went away does not end the process") {
  CHECK(code_after(SIGPIPE, SIGPIPE) == LB_GO_ON);
}
