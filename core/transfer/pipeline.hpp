// SPDX-License-Identifier: Apache-2.0
// A Diffusers pipeline: a folder with model_index.json and one folder for each component.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/export.hpp"

namespace limbeck {

inline constexpr const char* kPipelineFile = "model_index.json";

LIMBECK_API bool is_pipeline(const std::filesystem::path& folder);

// Files that are weights or an index of them, under any name that is in use, in any format.
LIMBECK_API bool is_any_weights_file(const std::string& name);

struct PipelineCopy {
  uint64_t linked = 0;  // files
  uint64_t copied = 0;
  uint64_t copied_bytes = 0;
  std::vector<std::string> left_out;  // old weights, sorted: "transformer/model.safetensors"
};

// Makes in the existing folder `target` what `base` has: the same folders, and every file as a hard
// link, or as a copy where the file system cannot link. Links in `base` are followed: a file of the
// copy never depends on the base staying where it is. Left out are hidden entries at the top,
// `without` at the top, and in the folders `parts` weights files and config.json, which are written
// anew. Throws Error(kData) for links that lead nowhere or in a circle, and for what cannot be
// made.
LIMBECK_API PipelineCopy copy_pipeline(const std::filesystem::path& base,
                                       const std::filesystem::path& target,
                                       const std::vector<std::string>& parts,
                                       const std::string& without);

}  // namespace limbeck
