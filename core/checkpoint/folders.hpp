// SPDX-License-Identifier: Apache-2.0
// Checkpoints on disk: which there are, whether one is complete and undamaged, and which one a run
// goes on from. No libtorch.
//
//   <output_dir>/checkpoint-<step>/   limbeck.json  config.resolved.toml  COMPLETE
//                                     dcp/.metadata  dcp/__<rank>_<i>.distcp
//
// A folder under that name was renamed to it when all its files were on disk. limbeck.json has the
// hash of every other file, and COMPLETE that of limbeck.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/base/export.hpp"
#include "core/checkpoint/record.hpp"

namespace limbeck {

inline constexpr const char* kCompleteFile = "COMPLETE";
inline constexpr const char* kDcpFolder = "dcp";
inline constexpr const char* kCheckpointConfig = "config.resolved.toml";

// "checkpoint-<step>".
LIMBECK_API std::string checkpoint_name(int64_t step);
// The step of such a name; -1: it is another one.
LIMBECK_API int64_t step_of_checkpoint(const std::string& name);

struct CheckpointFolder {
  std::filesystem::path path;
  int64_t step = 0;  // of its name
};
// Those in a folder, newest first, complete or not. Empty if the folder does not exist. Throws
// Error(kData) if it cannot be read.
LIMBECK_API std::vector<CheckpointFolder> list_checkpoints(const std::filesystem::path& output_dir);

// The text of COMPLETE for the text of limbeck.json.
LIMBECK_API std::string completion_of(const std::string& record);

// Reads limbeck.json, and checks that it belongs to COMPLETE and that every file has its size.
// Throws Error(kData) that says what is wrong.
LIMBECK_API CheckpointRecord open_checkpoint(const std::filesystem::path& folder);
// open_checkpoint(), and compares the hash of every file: reads them all.
LIMBECK_API CheckpointRecord verify_checkpoint(const std::filesystem::path& folder);

struct LatestCheckpoint {
  std::optional<std::filesystem::path> folder;  // empty: there is none
  std::vector<std::string> skipped;             // newer ones, each with what is wrong with it
};
// The newest that verify_checkpoint() accepts.
LIMBECK_API LatestCheckpoint latest_checkpoint(const std::filesystem::path& output_dir);

// What --resume-from-checkpoint means: "latest" (of `output_dir`), a checkpoint folder or its dcp/,
// or a folder with checkpoints, of which it is the latest. Verified; checkpoints that were skipped
// are warnings. Empty: "latest" of a folder in which nothing was saved yet, which starts a run.
// Throws Error(kData) otherwise, and for "latest" if there are only damaged checkpoints or exports.
LIMBECK_API std::optional<std::filesystem::path> resolve_checkpoint(
    const std::string& argument, const std::filesystem::path& output_dir);

}  // namespace limbeck
