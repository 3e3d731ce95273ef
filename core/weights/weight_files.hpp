// SPDX-License-Identifier: Apache-2.0
// Where the weights of a network are: a safetensors file, or several with an index, in the folders
// that Diffusers reads and writes. No libtorch.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/export.hpp"

namespace limbeck {

inline constexpr const char* kWeightsStem = "diffusion_pytorch_model";
inline constexpr const char* kWeightsExtension = ".safetensors";
inline constexpr const char* kIndexExtension = ".safetensors.index.json";

struct WeightFiles {
  std::filesystem::path folder;                   // the place of config.json
  std::filesystem::path index;                    // empty: none
  std::vector<std::filesystem::path> files;       // sorted, all there
  std::map<std::string, std::string> weight_map;  // of the index: tensor -> name of a file
};

// `path`: a safetensors file, its index, or a folder. Of a folder, taken in this order:
//   diffusion_pytorch_model.safetensors.index.json, model.safetensors.index.json, the only other
//   *.safetensors.index.json; diffusion_pytorch_model.safetensors; model.safetensors;
//   all *.safetensors.
// A pipeline folder (one with model_index.json), and any other folder without weights of its own,
// stands for its folder `part`. Warns of other weights that are left aside. Throws Error(kData) for
// shards that are missing, and for shards beside an index that does not name them.
LIMBECK_API WeightFiles find_weight_files(const std::filesystem::path& path,
                                          const std::string& part = "transformer");

// "weight_map" of the index `text`, checked: tensor -> name of a file beside the index. Throws
// Error(kData) that names `index`.
LIMBECK_API std::map<std::string, std::string> parse_weight_map(std::string_view text,
                                                                const std::filesystem::path& index);

// Tensor -> index into `found.files`. `names`: those in each of the files. Throws Error(kData) for
// tensors that two files have, and those on which index and files do not agree.
LIMBECK_API std::map<std::string, size_t> place_tensors(
    const WeightFiles& found, const std::vector<std::vector<std::string>>& names);

// Files that are weights in this layout, or their index, under any of its names.
LIMBECK_API bool is_weights_file(std::string name);

// Names of the regular files in a folder, sorted. Throws Error(kData).
LIMBECK_API std::vector<std::string> file_names(const std::filesystem::path& folder);

// "a, b, ... and 5 more": the first ten.
LIMBECK_API std::string first_ten(const std::vector<std::string>& items, const char* between);

}  // namespace limbeck
