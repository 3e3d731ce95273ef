// SPDX-License-Identifier: Apache-2.0
// From a checkpoint to a folder that Diffusers opens. Needs neither plugins nor libtorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/export.hpp"
#include "core/transfer/component.hpp"
#include "core/transfer/pipeline.hpp"

namespace limbeck {

inline constexpr const char* kExportRecord = "limbeck_export.json";

struct ExportRequest {
  std::filesystem::path checkpoint;  // or an output folder: its newest complete one
  std::string role;
  bool is_averaged = false;          // the averaged weights instead of the live ones
  std::filesystem::path output;      // the folder to make
  const WeightType* type = nullptr;  // of the written numbers; nullptr: the base's, else as saved
  std::filesystem::path base;        // a pipeline or one component; empty: the role's init_from,
                                     // if that is a pipeline
  bool merges = false;               // adapters into the weights of the base
  bool overwrites = false;           // an earlier export at `output`
  bool verifies = false;             // see export_role()
  uint64_t shard_limit = kMaxShardBytes;
};

struct ExportedPart {
  std::string name;  // "transformer"; empty: `output` itself
  uint64_t tensors = 0;
  uint64_t numbers = 0;
  uint64_t bytes = 0;
};

struct ExportReport {
  std::filesystem::path checkpoint;
  int64_t step = 0;
  std::filesystem::path base;         // empty: none
  std::filesystem::path absent_base;  // init_from that is not there; empty: none
  PipelineCopy copy;                  // of the base, if it is a pipeline
  std::vector<ExportedPart> parts;
  std::vector<WrittenFile> files;  // paths within `output`
};

// Writes `output`: for every part of the role a folder with config.json and safetensors; with a
// pipeline as base also everything else that is in it; limbeck_export.json, which says where the
// weights are from and the digest of every file. `output` appears when all of it is written and
// checked. `verifies`: every tensor is read again and compared bit by bit with the checkpoint, and
// names and shapes with those of the base's own weights.
// Of a role with adapters: these alone, in folders as PEFT writes them; with `merges` the weights
// of the base, or else of the role's init_from, with the adapters in them (MergedTensors). Memory:
// two blocks of a tensor (kTensorBlock) and what is mapped of the checkpoint. Throws Error(kData),
// and Error(kUsage) for a role or weights that the checkpoint does not have.
LIMBECK_API ExportReport export_role(const ExportRequest& request);

}  // namespace limbeck
