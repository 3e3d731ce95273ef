// SPDX-License-Identifier: Apache-2.0
// Checkpoints that are written while training goes on, by a thread of their own, one at a time. No
// libtorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <future>
#include <optional>

#include "core/base/error.hpp"
#include "core/base/export.hpp"
#include "core/checkpoint/write.hpp"

namespace limbeck {

struct SaveOutcome {
  int64_t step = 0;
  std::filesystem::path folder;  // complete on disk, unless there is an error
  std::optional<Error> error;    // what was written is gone; all other checkpoints are as they were
  uint64_t bytes = 0;            // of tensors
  double seconds = 0;            // from start() to the last byte on disk
};

// All functions: [control].
class LIMBECK_API CheckpointSaver {
 public:
  // `limit`: checkpoints to keep, see remove_old_checkpoints().
  CheckpointSaver(std::filesystem::path output_dir, int64_t limit);
  // Waits for a save that is under way.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  bool is_busy() const { return running_.valid(); }
  // Writes in the background. Not while is_busy().
  void start(Snapshot snapshot, CheckpointText text);
  // The outcome of the save that was started last, once it is over; empty before, and afterwards.
  std::optional<SaveOutcome> poll();
  // The same, and waits for it; empty if none was started.
  std::optional<SaveOutcome> wait();

 private:
  std::filesystem::path output_dir_;
  int64_t limit_;
  std::future<SaveOutcome> running_;
};

}  // namespace limbeck
