// SPDX-License-Identifier: Apache-2.0
// Which steps of a run are recorded, and what becomes of the recording.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace limbeck {

// Steps `first` to `last`, from 1, with everything that happens between them; last < first: none.
struct ProfileSteps {
  int64_t first = 0;
  int64_t last = -1;
};

class ProfileWindow {
 public:
  ProfileWindow(const ProfileSteps& steps, std::filesystem::path output_dir)
      : steps_(steps), output_dir_(std::move(output_dir)) {}
  ~ProfileWindow();
  ProfileWindow(const ProfileWindow&) = delete;
  ProfileWindow& operator=(const ProfileWindow&) = delete;

  // Before anything of a step. [control]
  void begin_step(int64_t step);
  // After everything that belongs to it. [control]
  void end_step(int64_t step);
  // Writes profile.json and profile.txt to the run's folder and shows the latter. Also when a run
  // ends early; nothing was asked for: does nothing. A file that cannot be written is a warning.
  void finish();

 private:
  ProfileSteps steps_;
  std::filesystem::path output_dir_;
  int64_t recorded_ = 0;  // steps that are complete
  bool is_begun_ = false;
};

}  // namespace limbeck
