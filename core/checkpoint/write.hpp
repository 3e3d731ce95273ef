// SPDX-License-Identifier: Apache-2.0
// Writing a checkpoint so that it is there completely or not at all, and removing old ones. No
// libtorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/export.hpp"
#include "core/checkpoint/record.hpp"
#include "core/dcp/index.hpp"
#include "core/dcp/value.hpp"

namespace limbeck {

// This rank's part of one tensor, in host memory.
struct SavedTensor {
  std::string name;
  const DcpType* type = nullptr;
  std::vector<int64_t> sizes;             // of the whole tensor
  DcpBox box;                             // the part
  std::shared_ptr<const std::byte> data;  // row-major, box.numel() numbers
};

// The state of a run between two steps, copied: training goes on while it is written.
struct Snapshot {
  std::vector<SavedTensor> tensors;
  std::vector<std::pair<std::string, DcpValue>> values;

  LIMBECK_API uint64_t bytes() const;  // of the tensors
};

struct CheckpointText {
  std::string resolved_manifest;  // TOML
  CheckpointRecord record;        // `files` is filled in
};

// Writes <output_dir>/checkpoint-<step>: into a folder beside it, every file and folder flushed to
// disk, then renamed. One of that name that was there before is replaced by the rename and then
// removed. Returns the folder. Throws Error(kData) that names path, operation and reason; the new
// folder is then gone and every other checkpoint as it was. [any]
LIMBECK_API std::filesystem::path write_checkpoint(const std::filesystem::path& output_dir,
                                                   const Snapshot& snapshot,
                                                   CheckpointText text);

// Removes the oldest checkpoints, by number, until `limit` are left; 0: none is removed. `newest`,
// which is complete, always stays, and so does what is no checkpoint. What cannot be removed is a
// warning. [any]
LIMBECK_API void remove_old_checkpoints(const std::filesystem::path& output_dir,
                                        int64_t limit,
                                        const std::filesystem::path& newest);

// Removes what write_checkpoint() left behind when its process was killed. For the only run that
// writes to `output_dir`. [any]
LIMBECK_API void remove_unfinished_checkpoints(const std::filesystem::path& output_dir);

// Renames checkpoints of later steps than `step`, so that they are no longer taken for those of
// this run: checkpoint-30 becomes checkpoint-30.abandoned. Returns the new names. Throws
// Error(kData). [any]
LIMBECK_API std::vector<std::filesystem::path> set_aside_later_checkpoints(
    const std::filesystem::path& output_dir, int64_t step);

}  // namespace limbeck
