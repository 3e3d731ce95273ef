// SPDX-License-Identifier: Apache-2.0
// A folder of its own for a test, and small checkpoints in it.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "core/base/files.hpp"
#include "core/dcp/index.hpp"
#include "core/dcp/reader.hpp"
#include "core/dcp/writer.hpp"

namespace limbeck::testing {

class DcpFolder {
 public:
  DcpFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "limbeck-dcp-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~DcpFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  DcpFolder(const DcpFolder&) = delete;
  DcpFolder& operator=(const DcpFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

template <class T>
const std::byte* bytes_of(const std::vector<T>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

template <class T>
std::vector<T> read_all(const DcpReader& reader, const std::string& name, bool checks_sums = true) {
  const auto& sizes = reader.index().tensors.at(name).sizes;
  std::vector<T> values(
      static_cast<size_t>(DcpBox{std::vector<int64_t>(sizes.size(), 0), sizes}.numel()));
  reader.read(name, reinterpret_cast<std::byte*>(values.data()), checks_sums);
  return values;
}

// 0, 1, 2 ...
inline std::vector<float> counting(size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0F);
  return values;
}

// One tensor of counting numbers, cut into these boxes; box i in the file of rank i.
inline void write_counting(const DcpFolder& folder,
                           const std::string& name,
                           const std::vector<int64_t>& sizes,
                           const std::vector<DcpBox>& boxes) {
  const auto* type = find_dcp_type("float32");
  DcpIndex index;
  DcpTensor tensor = {type, sizes, {}};
  for (size_t i = 0; i < boxes.size(); ++i) {
    DcpFileWriter writer(folder.path(), "__" + std::to_string(i) + "_0.distcp");
    // The numbers of the box, one by one.
    std::vector<float> values;
    for (int64_t n = 0; n < boxes[i].numel(); ++n) {
      int64_t rest = n;
      int64_t place = 0;
      int64_t stride = 1;
      for (size_t d = sizes.size(); d-- > 0;) {
        place += (boxes[i].offsets[d] + rest % boxes[i].sizes[d]) * stride;
        rest /= boxes[i].sizes[d];
        stride *= sizes[d];
      }
      values.push_back(static_cast<float>(place));
    }
    tensor.chunks.push_back({boxes[i], writer.add_tensor(*type, boxes[i].sizes, bytes_of(values))});
    writer.close();
  }
  index.tensors[name] = tensor;
  write_file(folder / kDcpIndexFile, dcp_index_bytes(index));
}

}  // namespace limbeck::testing
