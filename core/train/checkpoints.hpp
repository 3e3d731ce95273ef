// SPDX-License-Identifier: Apache-2.0
// When a run saves its state, and what it says about it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/checkpoint/saver.hpp"
#include "core/train/run_state.hpp"

namespace limbeck {

// Before weights are read: throws Error(kData) if a run that `resumes` nothing would write its
// checkpoints among those of another. [control]
void check_folder(const Manifest& manifest, bool resumes);
// Makes the run's folder that of a run that goes on after `step`: checkpoints of later steps are
// set aside, and what was never completed is removed. Throws Error(kData). [control]
void claim_folder(const Manifest& manifest, int64_t step);

// All functions: [control].
class Checkpoints {
 public:
  // `saved_step`: the step whose checkpoint in the run's folder it goes on from, or -1. `on_saved`
  // is told of every checkpoint that is complete on disk, between steps.
  Checkpoints(Run& run,
              RunState& state,
              int64_t saved_step,
              std::function<void(const SaveOutcome&)> on_saved);

  // Whether checkpoints are written at all.
  bool is_on() const { return every_steps_ > 0; }
  // After a step: copies the state and starts to write it if a save is due, or `is_requested`, or
  // was put off before. A save that fails is an error in the log, and the run goes on: the state
  // is tried again when the next save is due.
  void after_step(const RunPosition& position, bool is_requested);
  // Before the run ends, if is_on(): saves the last step unless it is saved, and waits. Throws
  // Error(kData) if that fails.
  void finish(const RunPosition& position);
  // Waits for a save that is under way and tells of it.
  void settle();
  // How long the last save took, in seconds: how much earlier than a deadline to begin one.
  double seconds() const { return seconds_; }

 private:
  bool try_save(const RunPosition& position);
  void tell(const SaveOutcome& outcome);

  Run& run_;
  RunState& state_;
  std::function<void(const SaveOutcome&)> on_saved_;
  int64_t every_steps_;
  int64_t saved_step_;  // the last one that is complete on disk; -1: none
  CheckpointSaver saver_;
  bool is_put_off_ = false;
  double seconds_ = 0;
};

}  // namespace limbeck
