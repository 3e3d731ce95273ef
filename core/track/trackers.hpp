// SPDX-License-Identifier: Apache-2.0
// Trackers: where the numbers and files of a run are kept. Each has a thread of its own, so that
// neither a slow disk nor another tracker holds it up, and none can stop a run.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/manifest/manifest.hpp"
#include "core/track/reported_file.hpp"
#include "core/track/tracker_thread.hpp"

namespace limbeck {

class Trackers {
 public:
  // Opens every tracker of the manifest, in <output_dir>. `id` tells runs apart that have the same
  // name and folder, and is kept when one is resumed. `first_step` is 1, or the step after the
  // checkpoint that was resumed. Throws Error if one cannot be opened. `manifest` must outlive the
  // process if a tracker can be left behind, else this object. [control]
  Trackers(const Manifest& manifest,
           const std::string& id,
           int64_t first_step,
           TrackerLimits limits = {});
  // As close().
  ~Trackers();
  Trackers(const Trackers&) = delete;
  Trackers& operator=(const Trackers&) = delete;

  // Both return at once. Empty `numbers` are not told. [control]
  void scalars(int64_t step, std::map<std::string, double> numbers);
  void file(int64_t step, ReportedFile file);
  // Said to the trackers when they are closed. The default is false.
  void set_succeeded() { has_succeeded_ = true; }
  // Gives the trackers what they have not written yet, as long as patience lasts, and closes them.
  // Nothing can be told afterwards. [control]
  std::vector<TrackerReport> close();

 private:
  void post(TrackedRecord record);

  TrackerLimits limits_;
  bool has_succeeded_ = false;
  std::vector<std::unique_ptr<TrackerThread>> threads_;
};

}  // namespace limbeck
