// SPDX-License-Identifier: Apache-2.0
// Writing the data file of one rank of a DCP checkpoint: archives as torch.save writes them, one
// after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/base/export.hpp"
#include "core/dcp/index.hpp"
#include "core/dcp/value.hpp"

namespace limbeck {

struct FileDigest {
  uint64_t bytes = 0;
  uint64_t xxh3 = 0;  // XXH3, 64 bits, of all bytes
};

// The digest of a file on disk. Throws Error(kData).
LIMBECK_API FileDigest digest_of_file(const std::filesystem::path& path);

// Not thread-safe; the calling thread does the writing. A file that was not closed is left behind,
// incomplete: whoever made its folder removes it.
class LIMBECK_API DcpFileWriter {
 public:
  // Creates the file, which must not exist. `name` as items say it: "__0_0.distcp". Throws
  // Error(kData) that names path, operation and reason; so do all functions.
  DcpFileWriter(const std::filesystem::path& folder, std::string name);
  ~DcpFileWriter();
  DcpFileWriter(const DcpFileWriter&) = delete;
  DcpFileWriter& operator=(const DcpFileWriter&) = delete;

  // Row-major numbers. The payload begins at a multiple of 64 bytes in the file.
  DcpItem add_tensor(const DcpType& type, const std::vector<int64_t>& sizes, const std::byte* data);
  // Throws Error(kInternal) for an Opaque value.
  DcpItem add_value(const DcpValue& value);
  // Bytes written so far.
  uint64_t bytes() const;
  // Flushes to disk and closes. Nothing may be added after.
  FileDigest close();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace limbeck
