// SPDX-License-Identifier: Apache-2.0
// Reading tensors and values of a DCP checkpoint, written by limbeck or by PyTorch on any number
// of ranks.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>

#include "core/base/export.hpp"
#include "core/dcp/index.hpp"
#include "core/dcp/value.hpp"

namespace limbeck {

// Items are mapped, not read, until they are asked for. [any]
class LIMBECK_API DcpReader {
 public:
  // Reads the index and checks that every file is there and long enough. Throws Error(kData).
  explicit DcpReader(const std::filesystem::path& folder);
  ~DcpReader();
  DcpReader(const DcpReader&) = delete;
  DcpReader& operator=(const DcpReader&) = delete;

  const std::filesystem::path& folder() const;
  const DcpIndex& index() const;

  // Copies the part `box` of a tensor to `out`: row-major, box.numel() numbers of the tensor's
  // type. Reads only chunks that meet the box. `checks_sums`: compares the CRC of every item it
  // touches. Throws Error(kData) that names the tensor and the file for an unknown name, a box
  // outside, and items that are damaged or say something else than the index.
  void read(const std::string& name,
            const DcpBox& box,
            std::byte* out,
            bool checks_sums = true) const;
  // The whole tensor.
  void read(const std::string& name, std::byte* out, bool checks_sums = true) const;
  // Throws Error(kData) likewise.
  DcpValue value(const std::string& name) const;

 private:
  class Files;
  std::filesystem::path folder_;
  DcpIndex index_;
  std::unique_ptr<Files> files_;
};

}  // namespace limbeck
