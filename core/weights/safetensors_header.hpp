// SPDX-License-Identifier: Apache-2.0
// The header of a file in the safetensors format: 8 bytes little-endian length of a JSON header,
// the header, then the tensors' bytes without gaps. No libtorch: headers answer in milliseconds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/export.hpp"

namespace limbeck {

// A number format that the format knows. Whether limbeck can compute with it is another question.
struct WeightType {
  const char* name;  // "BF16"
  uint32_t bits;     // of one number
};

// nullptr: the format has no type of this name.
LIMBECK_API const WeightType* find_weight_type(std::string_view name);

// What a header says of one tensor.
struct TensorEntry {
  const WeightType* type = nullptr;  // never null in a header that was read
  std::vector<int64_t> sizes;
  uint64_t begin = 0;  // bytes, within the data part of the file
  uint64_t end = 0;

  uint64_t bytes() const { return end - begin; }
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::map<std::string, TensorEntry> tensors;  // sorted by name
  uint64_t data_offset = 0;                    // bytes, where the data part begins in the file
};

inline constexpr uint64_t kSafetensorsLengthBytes = 8;
inline constexpr uint64_t kSafetensorsMaxHeader = 100'000'000;  // the Python library's limit too

// Reads and checks a header completely: every byte of the data part belongs to exactly one tensor.
// `head` is the file's beginning, which holds the header, or the whole file; `file_bytes` is the
// size of the file. Throws Error(kData) that names `path`, and the tensor where it is about one.
LIMBECK_API SafetensorsHeader parse_safetensors_header(std::string_view head,
                                                       uint64_t file_bytes,
                                                       const std::filesystem::path& path);

// The same of a file, of which only the header is read.
LIMBECK_API SafetensorsHeader read_safetensors_header(const std::filesystem::path& path);

// The inverse: gives every tensor of `header`, whose types and sizes are set, its place, sets
// data_offset, and returns the bytes of the file before the data. In the file tensors stand by
// descending size of their numbers, then by type and name, as the Python library has them, which
// aligns them all; the bytes are those of that library. Throws Error(kData) that names `path` for
// names that the format cannot hold.
LIMBECK_API std::string lay_out_safetensors(SafetensorsHeader& header,
                                            const std::filesystem::path& path);

}  // namespace limbeck
