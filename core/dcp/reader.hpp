// SPDX-License-Identifier: Apache-2.0
// Reading tensors and values of a DCP checkpoint, written by limbeck or by PyTorch on any number
// of ranks.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "core/base/export.hpp"
#include "core/dcp/index.hpp"
#include "core/dcp/value.hpp"

namespace limbeck {

// Items are read when they are asked for; no file stays open. [any]
class LIMBECK_API DcpReader {
 public:
  // Reads the index and checks that every file is there and long enough. Throws Error(kData).
  explicit DcpReader(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const DcpIndex& index() const { return index_; }

  // Copies the part `box` of a tensor to `out`: row-major, box.numel() numbers of the tensor's
  // type. Reads only chunks that meet the box. `checks_sums`: compares the CRC of every item it
  // touches, for which the whole item is read. Throws Error(kData) that names the tensor and the
  // file for an unknown name, a box outside, and items that are damaged or say something else than
  // the index; `out` then holds anything.
  void read(const std::string& name,
            const DcpBox& box,
            std::byte* out,
            bool checks_sums = true) const;
  // The whole tensor.
  void read(const std::string& name, std::byte* out, bool checks_sums = true) const;
  // Throws Error(kData) likewise.
  DcpValue value(const std::string& name) const;

 private:
  std::string where(const std::string& name, const DcpItem& item) const;
  // The elements of `common`, which `chunk` and `wanted` share.
  void read_chunk(const std::string& name,
                  const DcpTensor& tensor,
                  const DcpChunk& chunk,
                  const DcpBox& common,
                  const DcpBox& wanted,
                  char* out,
                  bool checks_sums) const;

  std::filesystem::path folder_;
  DcpIndex index_;
};

}  // namespace limbeck
