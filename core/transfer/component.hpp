// SPDX-License-Identifier: Apache-2.0
// Writing the weights of one network as a folder that Diffusers reads, from tensors on disk,
// without ever holding more than a block of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/export.hpp"
#include "core/checkpoint/record.hpp"  // digest_text()
#include "core/transfer/tensor_files.hpp"

namespace limbeck {

struct WrittenFile {
  std::filesystem::path path;
  uint64_t bytes = 0;
  uint64_t xxh3 = 0;  // XXH3, 64 bits, of all bytes
};

// One tensor to write.
struct TensorCopy {
  std::string name;                  // in the new files
  std::string source;                // in the files it is read from
  const WeightType* type = nullptr;  // to write it as; floating types become one another
};

// Decimal gigabytes, as published models use.
inline constexpr uint64_t kMaxShardBytes = 5'000'000'000;

// Writes into the existing `folder`, where no such file may be:
// diffusion_pytorch_model.safetensors, or shards diffusion_pytorch_model-00001-of-0000N.safetensors
// with their index if the tensors need more than `shard_limit` bytes. Tensors go to shards in the
// given order; one that is larger than the limit gets a shard of its own. Files are flushed to
// disk. Returns the weights files in order, then the index. Throws Error(kData) for two tensors of
// one name, types that do not become one another, finite numbers that the new type cannot hold, and
// what TensorFiles and the disk refuse; what was written until then is left behind.
LIMBECK_API std::vector<WrittenFile> write_component(const std::filesystem::path& folder,
                                                     const TensorFiles& source,
                                                     const std::vector<TensorCopy>& tensors,
                                                     uint64_t shard_limit = kMaxShardBytes);

// Reads `folder` again and compares names, types, shapes and every bit with what `tensors` of
// `source` are as their new type. Throws Error(kData) that names the first difference.
LIMBECK_API void verify_component(const std::filesystem::path& folder,
                                  const TensorFiles& source,
                                  const std::vector<TensorCopy>& tensors);

// Whether `tensors` have the names and shapes of `base`, headers alone. Throws Error(kData) with
// all that are missing, unexpected or of another shape.
LIMBECK_API void compare_names(const TensorFiles& base,
                               const TensorFiles& source,
                               const std::vector<TensorCopy>& tensors);

}  // namespace limbeck
