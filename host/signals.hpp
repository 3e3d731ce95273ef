// SPDX-License-Identifier: Apache-2.0
// Signals: the user's wish to stop.
#pragma once

namespace limbeck::host {

// From now on SIGINT, SIGTERM, SIGHUP (unless it is ignored) and SIGUSR1 ask the run to stop after
// its step; a second SIGINT within five seconds ends the process at once, with exit code 130.
// [control]
void watch_signals();

// A reader that goes away (`limbeck ... | head`) is an error of a write, not the end. [control]
void ignore_broken_pipes();

}  // namespace limbeck::host
