// SPDX-License-Identifier: Apache-2.0
// What limbeck.json in a checkpoint of limbeck says.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/base/export.hpp"

namespace limbeck {

inline constexpr const char* kCheckpointRecord = "limbeck.json";

struct SavedPlugin {
  std::string name;
  std::string id;
  std::string version;
  std::string sha256;
};

// One folder of a role's weights, such as "transformer".
struct SavedPart {
  std::string class_name;  // "_class_name" of its config.json
  std::string config;      // the other keys of its config.json: a JSON object
};

struct SavedRole {
  std::string type;
  std::string init_from;  // empty: none
  bool is_averaged = false;
  std::map<std::string, SavedPart> parts;
};

struct SavedFile {
  std::string path;  // within the checkpoint
  uint64_t bytes = 0;
  std::string xxh3;  // 16 digits
};

struct SavedRun {
  std::filesystem::path folder;
  int64_t step = 0;
  std::string saved;    // when, UTC
  std::string version;  // of limbeck
  std::vector<SavedPlugin> plugins;
  std::map<std::string, SavedRole> roles;
  std::vector<SavedFile> files;
};

// Whether `folder` is a checkpoint of limbeck.
LIMBECK_API bool is_checkpoint(const std::filesystem::path& folder);
// `path`: a checkpoint, or an output folder, of which the newest complete checkpoint is taken.
// Throws Error(kData) for a folder that is neither and for a damaged one.
LIMBECK_API SavedRun read_saved_run(const std::filesystem::path& path);

}  // namespace limbeck
