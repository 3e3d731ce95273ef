// SPDX-License-Identifier: Apache-2.0
// Named tensors on disk, whatever keeps them: safetensors files, or a distributed checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/export.hpp"
#include "core/weights/safetensors_header.hpp"
#include "core/weights/weight_files.hpp"

namespace limbeck {

struct TensorShape {
  const WeightType* type = nullptr;  // never null
  std::vector<int64_t> sizes;

  LIMBECK_API uint64_t numel() const;
  uint64_t bytes() const { return numel() * type->bits / 8; }
};

// "[2, 3]"
LIMBECK_API std::string shape_text(const std::vector<int64_t>& sizes);

class LIMBECK_API TensorFiles {
 public:
  virtual ~TensorFiles() = default;
  TensorFiles() = default;
  TensorFiles(const TensorFiles&) = delete;
  TensorFiles& operator=(const TensorFiles&) = delete;

  // Where they are: a file or a folder.
  const std::filesystem::path& path() const { return path_; }
  // By name.
  const std::map<std::string, TensorShape>& tensors() const { return tensors_; }
  // Throws Error(kData) for an unknown name.
  const TensorShape& shape(const std::string& name) const;

  // Copies bytes [first, first + bytes) of the tensor, whose numbers are in row-major order. Both
  // are multiples of the type's width. A tensor is read from its beginning to its end, in as many
  // parts as the caller likes: memory does not grow with the tensor, and what begins at 0 is
  // compared with the files' own sums. Throws Error(kData) for what cannot be read or is damaged.
  virtual void read(const std::string& name,
                    uint64_t first,
                    uint64_t bytes,
                    std::byte* out) const = 0;

 protected:
  std::filesystem::path path_;
  std::map<std::string, TensorShape> tensors_;
};

// Bytes to read at once: a multiple of every type's width.
inline constexpr uint64_t kTensorBlock = uint64_t{8} << 20;

// Reads the whole tensor, block by block; `visit` gets each in turn, at most kTensorBlock bytes.
LIMBECK_API void read_blocks(
    const TensorFiles& files,
    const std::string& name,
    const std::function<void(const std::byte* data, uint64_t first, uint64_t bytes)>& visit);

// `path`: a safetensors file, its index, a folder of weights, a pipeline folder with one such
// folder in it, a folder with .metadata (a distributed checkpoint of PyTorch or limbeck), or a
// checkpoint of limbeck with such a folder dcp/ in it. `part`: of a pipeline folder, which of its
// folders; empty: the only one that has weights. Throws Error(kData).
LIMBECK_API std::unique_ptr<TensorFiles> open_tensor_files(const std::filesystem::path& path,
                                                           const std::string& part = "");

// The same of a folder with .metadata alone.
LIMBECK_API std::unique_ptr<TensorFiles> open_dcp_tensors(const std::filesystem::path& folder);
// The same of safetensors files alone; see find_weight_files().
LIMBECK_API std::unique_ptr<TensorFiles> open_weights(const std::filesystem::path& path);
LIMBECK_API std::unique_ptr<TensorFiles> open_weights(const WeightFiles& found,
                                                      const std::filesystem::path& path);

}  // namespace limbeck
