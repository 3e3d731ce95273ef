// SPDX-License-Identifier: Apache-2.0
// Low-rank adapters in the folders that PEFT writes: which layers have one, and what its numbers
// are multiplied by. No libtorch.
//
// An adapter of a linear layer with the weight W [out, in] is A [r, in] and B [out, r]:
//   y = x W^T + scale (x A^T) B^T,   scale = alpha / r, or alpha / sqrt(r) with use_rslora
// (Hu et al. 2021; Kalajdzievski 2023). With B = 0, as it begins, the layer is the one without.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/export.hpp"

namespace limbeck {

inline constexpr const char* kAdapterConfigFile = "adapter_config.json";
inline constexpr const char* kAdapterWeightsFile = "adapter_model.safetensors";
// Before the name of the layer in that file, and behind it.
inline constexpr const char* kAdapterPrefix = "base_model.model.";
inline constexpr const char* kAdapterA = ".lora_A.weight";
inline constexpr const char* kAdapterB = ".lora_B.weight";

struct LIMBECK_API AdapterConfig {
  int64_t rank = 0;  // r > 0
  double alpha = 0;  // > 0
  bool uses_rslora = false;
  // A layer is adapted if its name is a target or ends with "." and a target, and is not excluded
  // likewise. "all-linear" is every layer.
  std::vector<std::string> targets;
  std::string target_pattern;  // instead of targets: a regular expression for whole names
  std::vector<std::string> excluded;
  // The first pattern that is the name, or the name after a dot, decides; else rank and alpha.
  std::vector<std::pair<std::string, int64_t>> rank_pattern;
  std::vector<std::pair<std::string, double>> alpha_pattern;

  bool selects(const std::string& layer) const;
  int64_t rank_of(const std::string& layer) const;
  double scale_of(const std::string& layer) const;

  // The text of adapter_config.json. `base`: where the weights below are; may be empty.
  std::string to_json(const std::string& base) const;
};

// Whether a folder has adapters as PEFT writes them.
LIMBECK_API bool is_adapter_folder(const std::filesystem::path& folder);

// Reads adapter_config.json. Throws Error(kData) that names the file and the key, for what limbeck
// does not compute: other types than LORA, DoRA, biases, modules_to_save, fan_in_fan_out, layers
// chosen by number, weights that are no safetensors.
LIMBECK_API AdapterConfig read_adapter_config(const std::filesystem::path& folder);
// The same of the text of such a file; `path` is for messages.
LIMBECK_API AdapterConfig parse_adapter_config(const std::string& text,
                                               const std::filesystem::path& path);

}  // namespace limbeck
