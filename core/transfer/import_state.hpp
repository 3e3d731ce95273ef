// SPDX-License-Identifier: Apache-2.0
// From the training state of another program, a distributed checkpoint of PyTorch, to weights that
// a role can be loaded from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/base/export.hpp"
#include "core/transfer/component.hpp"

namespace limbeck {

inline constexpr const char* kImportRecord = "limbeck_import.json";

struct ImportRequest {
  std::filesystem::path state;  // a folder with .metadata, or one with such a folder dcp/ or
                                // distributed_checkpoint/ in it
  std::string role;
  // Tensors whose names begin so, without it, become weights in `output` itself. Empty:
  // "roles.<role>.<part>." for each part there is, in the folder `output`/<part>.
  std::string prefix;
  std::filesystem::path output;
  const WeightType* type = nullptr;  // of the written numbers; nullptr: as saved
  std::filesystem::path
      base;  // a pipeline or one component: its config.json is taken; may be empty
  // The published name of what is behind the prefix; none: names stay as they are.
  std::function<std::string(const std::string& name)> rename;
  bool overwrites = false;  // an earlier import at `output`
  bool verifies = false;    // reads everything again; compares names with the base's weights
  uint64_t shard_limit = kMaxShardBytes;
};

struct ImportReport {
  struct Aside {
    uint64_t tensors = 0;
    uint64_t values = 0;  // that are no tensors
  };
  std::vector<WrittenFile> files;  // paths within `output`
  uint64_t tensors = 0;
  uint64_t bytes = 0;
  uint64_t renamed = 0;
  bool has_config = false;             // a config.json was written
  std::map<std::string, Aside> aside;  // what was not taken, by the first two parts of its name
};

// Throws Error(kData), also for two tensors that would have one name.
LIMBECK_API ImportReport import_state(const ImportRequest& request);

}  // namespace limbeck
