// SPDX-License-Identifier: Apache-2.0
// One tracker on a thread of its own.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <limbeck/abi.h>

#include "core/manifest/manifest.hpp"
#include "core/track/reported_file.hpp"

namespace limbeck {

// What trackers are told at once: the numbers of a step, or one file.
struct TrackedRecord {
  int64_t step = 0;
  std::map<std::string, double> numbers;
  std::optional<ReportedFile> file;
};

struct TrackerLimits {
  size_t waiting = 4096;              // records that wait for a tracker
  std::chrono::seconds patience{30};  // for trackers that are busy when the run ends
};

// How a tracker fared.
struct TrackerReport {
  std::string name;
  uint64_t kept = 0;      // records that it took
  uint64_t lost = 0;      // records that it did not get or refused
  uint64_t failures = 0;  // calls that failed, repeated ones included
  uint64_t kinds = 0;     // different messages among these; each was logged once
  bool is_left_behind = false;
};

// Nothing here can fail or stop a run, and post() never waits.
//
// A record that the tracker refuses with LB_UNAVAILABLE (a full disk, a network that is down) stays
// first in the queue and is offered again with the next record and at the end; refused otherwise,
// it is lost. When as many records wait as the limits allow, further ones are lost. What is
// lost is counted; each kind of failure is logged once. A tracker that does not return is left
// behind with its thread when patience has run out.
class TrackerThread {
 public:
  // Starts the thread and opens the tracker on it. Throws Error if it cannot be opened: at the
  // start a wrong setting is an error. `spec` must outlive the process if the tracker can be left
  // behind, else this object. [control]
  TrackerThread(const ComponentSpec& spec, const lb_tracked_run& run, const TrackerLimits& limits);
  ~TrackerThread();
  TrackerThread(const TrackerThread&) = delete;
  TrackerThread& operator=(const TrackerThread&) = delete;

  // Hands a record over. [control]
  void post(std::shared_ptr<const TrackedRecord> record);
  // No more records will come: the tracker gets what waits and is closed. Returns at once.
  // [control]
  void finish(bool succeeded);
  // After finish(): waits for the end of the thread, until `deadline` at most, and logs what was
  // lost. [control]
  TrackerReport wait_until(std::chrono::steady_clock::time_point deadline);

 private:
  struct State;

  static void work(State& state, const ComponentSpec& spec, const lb_tracked_run* run);

  std::shared_ptr<State> state_;  // the thread has one too: it may live longer than this object
  std::chrono::seconds patience_;
  std::thread thread_;
};

}  // namespace limbeck
