// SPDX-License-Identifier: Apache-2.0
// From a weights file to a network's parameters.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

namespace limbeck {

struct WeightTarget {
  std::string key;
  at::Tensor value;          // written in place, converted to its dtype
  bool is_optional = false;  // stays as it is when the file has no such key
};

// Copies every target from `path` (see WeightSource; `part` is the folder of a pipeline). Keys of
// the file go through `translate` first. Names that are missing, unexpected or of another shape
// are reported together as Error(kData), before any value is written. [control]
void load_weights(const std::filesystem::path& path,
                  const std::string& part,
                  const std::vector<WeightTarget>& targets,
                  const std::function<std::string(const std::string& key)>& translate);

}  // namespace limbeck
