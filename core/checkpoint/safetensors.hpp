// SPDX-License-Identifier: Apache-2.0
// Files in the safetensors format: 8 bytes little-endian length of a JSON header, the header,
// then the tensors' bytes without gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

namespace limbeck {

// What a header says of one tensor.
struct TensorInfo {
  at::ScalarType dtype = at::kFloat;  // Undefined: a type of the format that limbeck does not read
  std::string type;                   // the format's name: "BF16"
  std::vector<int64_t> sizes;
  uint64_t begin = 0;  // bytes, within the data part of the file
  uint64_t end = 0;

  uint64_t bytes() const { return end - begin; }
};

// A file that is mapped into memory, opened after its header was checked completely: every byte
// belongs to exactly one tensor. Copies share the mapping. [any]
class SafetensorsFile {
 public:
  // Throws Error(kData) that names the file, and the tensor where it is about one.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // Sorted by name.
  const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }

  // Throws Error(kData) for a name that the file does not have.
  const TensorInfo& info(const std::string& name) const;
  // The bytes of the tensor, as long as this object or a copy of it lives.
  const std::byte* data(const std::string& name) const;
  // Throws Error(kData) for a type that limbeck does not read. A CPU tensor that shares the mapping
  // and keeps it alive; a copy where the file aligns the tensor badly. Writing to it changes
  // neither the file nor other processes.
  at::Tensor tensor(const std::string& name) const;

 private:
  class Mapping;

  std::filesystem::path path_;
  std::shared_ptr<const Mapping> mapping_;
  uint64_t data_offset_ = 0;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, TensorInfo> tensors_;
};

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Writes one file through a temporary one beside it, flushed to disk and then renamed: at any time
// `path` is the old file or the complete new one. Tensors may be on any device and need not be
// contiguous; they are copied one at a time. Within the file they are sorted by descending size of
// their elements, then by dtype and name, as the Python library does, which aligns them all; the
// bytes are those of that library. Throws Error(kData) that names path and reason; then the old
// file is untouched.
void write_safetensors(const std::filesystem::path& path,
                       const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

}  // namespace limbeck
