// SPDX-License-Identifier: Apache-2.0
// A checkpoint of limbeck as an export or a person sees it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/base/export.hpp"
#include "core/checkpoint/record.hpp"
#include "core/weights/adapters.hpp"

namespace limbeck {

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
  int64_t parameters = 0;  // numbers in all its weights, also those that are not saved
  std::map<std::string, SavedPart> parts;
  std::vector<AdapterConfig> adapters;  // of each part, or one for all; empty: none
};

struct SavedRun {
  std::filesystem::path folder;
  CheckpointRecord record;
  std::string version;  // of limbeck
  std::vector<SavedPlugin> plugins;
  std::map<std::string, SavedRole> roles;
};

// Whether `folder` looks like a checkpoint of limbeck.
LIMBECK_API bool is_checkpoint(const std::filesystem::path& folder);
// `path`: a checkpoint, or an output folder, of which the newest complete checkpoint is taken;
// newer ones that are not are warnings. Throws Error(kData) for a folder that is neither, and what
// open_checkpoint() throws.
LIMBECK_API SavedRun read_saved_run(const std::filesystem::path& path);

}  // namespace limbeck
