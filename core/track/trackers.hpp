// SPDX-License-Identifier: Apache-2.0
// Trackers: where the numbers and files of a run are kept. They run on one thread of their own,
// so that a slow disk does not stop a step, and a tracker that fails is reported and left out; it
// never ends the run.
#pragma once

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <limbeck/abi.h>

#include "core/manifest/manifest.hpp"
#include "core/track/metrics.hpp"

namespace limbeck {

class Trackers {
 public:
  // Opens every tracker of the manifest, in <output_dir>. Throws Error if one cannot be opened:
  // at the start a wrong setting is an error. `manifest` must outlive this object. [control]
  Trackers(const Manifest& manifest, int64_t first_step);
  // Writes what is left and closes them.
  ~Trackers();
  Trackers(const Trackers&) = delete;
  Trackers& operator=(const Trackers&) = delete;

  void scalars(int64_t step, std::map<std::string, double> numbers);
  void file(int64_t step, ReportedFile file);
  // Said to the trackers when they are closed. The default is false.
  void set_succeeded() { succeeded_ = true; }

 private:
  struct Open {
    const ComponentSpec* spec;
    const lb_tracker_vtable* vtable;
    void* self;
    bool has_failed = false;
  };

  void post(std::function<void()> work);
  void work();
  // Runs a tracker's function; on failure the tracker is reported once and not asked again.
  void ask(Open& tracker, const std::function<lb_status*()>& question);

  std::vector<Open> trackers_;
  bool succeeded_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace limbeck
