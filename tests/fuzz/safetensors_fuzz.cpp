// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file is read completely before one of its tensors is: whatever is
// accepted describes bytes that are there, each once.
#include <cstdlib>
#include <string_view>

#include "core/base/error.hpp"
#include "core/weights/safetensors_header.hpp"
#include "input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  try {
    const auto header = limbeck::parse_safetensors_header(file, size, "input.safetensors");
    uint64_t bytes = 0;
    for (const auto& [name, tensor] : header.tensors) {
      if (tensor.begin > tensor.end || header.data_offset + tensor.end > size) {
        std::abort();
      }
      bytes += tensor.bytes();
    }
    if (header.data_offset + bytes != size) {
      std::abort();
    }
  } catch (const limbeck::Error&) {
  }
  return 0;
}
