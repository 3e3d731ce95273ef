// SPDX-License-Identifier: Apache-2.0
// What a PyTorch distributed checkpoint (torch.distributed.checkpoint, "DCP") holds and where: the
// file `.metadata`, which is one pickle. No libtorch, and nothing in a file is ever executed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/export.hpp"

namespace limbeck {

// A number format that both sides know.
struct DcpType {
  const char* name;          // "float32", as in torch.float32
  const char* storage;       // "FloatStorage"; nullptr: saved as untyped storage
  const char* weights_name;  // "F32", as safetensors calls it; nullptr: it has none
  uint32_t bytes;            // of one number
};
// nullptr: not known. `name` is "float32".
LIMBECK_API const DcpType* find_dcp_type(std::string_view name);
// The same by the name of its storage, "FloatStorage".
const DcpType* find_dcp_storage(std::string_view storage);

// A rectangular part of a tensor.
struct DcpBox {
  std::vector<int64_t> offsets;  // where it begins, in elements
  std::vector<int64_t> sizes;

  LIMBECK_API int64_t numel() const;
  bool operator==(const DcpBox&) const = default;
};

// At most 2 * dimensions - 1 boxes (for a scalar one) that cover the elements [begin, end) of a
// row-major tensor, in order, without overlap. Empty for an empty range. Throws Error(kInternal)
// for a range outside.
LIMBECK_API std::vector<DcpBox> boxes_of_range(const std::vector<int64_t>& sizes,
                                               int64_t begin,
                                               int64_t end);

// One item: a zip archive as torch.save writes it.
struct DcpItem {
  std::string file;  // beside .metadata
  uint64_t offset = 0;
  uint64_t length = 0;
};

struct DcpChunk {
  DcpBox box;
  DcpItem item;
};

struct DcpTensor {
  const DcpType* type = nullptr;  // never null in an index that was read
  std::vector<int64_t> sizes;
  std::vector<DcpChunk> chunks;  // cover the tensor, without overlap; some may be empty
};

struct DcpIndex {
  std::map<std::string, DcpTensor> tensors;
  std::map<std::string, DcpItem> values;  // Python objects that are no tensors

  bool has(const std::string& name) const {
    return tensors.count(name) > 0 || values.count(name) > 0;
  }
};

inline constexpr const char* kDcpIndexFile = ".metadata";

// Reads `folder`/.metadata. Throws Error(kData) that names the file and what is wrong with it: not
// such a pickle, classes that DCP does not use, compressed items, chunks that overlap, leave gaps
// or lie outside, files outside the folder.
LIMBECK_API DcpIndex read_dcp_index(const std::filesystem::path& folder);
// The same of the bytes of such a file; `path` is for messages.
LIMBECK_API DcpIndex parse_dcp_index(std::string_view bytes, const std::filesystem::path& path);
// The bytes of .metadata for `index`, which torch.distributed.checkpoint 2.6 and later read.
// Throws Error(kInternal) for an index that parse_dcp_index() would refuse.
LIMBECK_API std::string dcp_index_bytes(const DcpIndex& index);

}  // namespace limbeck
