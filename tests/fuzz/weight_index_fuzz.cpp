// SPDX-License-Identifier: Apache-2.0
// The index of sharded weights names files: never one outside its own folder.
#include <cstdlib>
#include <string_view>

#include "core/base/error.hpp"
#include "core/weights/weight_files.hpp"
#include "input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto map = limbeck::parse_weight_map(text, "model.safetensors.index.json");
    for (const auto& [tensor, file] : map) {
      if (file.find('/') != std::string::npos || !file.ends_with(".safetensors")) {
        std::abort();
      }
    }
    limbeck::WeightFiles found;
    found.index = "model.safetensors.index.json";
    found.files = {"a.safetensors"};
    found.weight_map = map;
    limbeck::place_tensors(found, {{"x"}});
  } catch (const limbeck::Error&) {
  }
  return 0;
}
