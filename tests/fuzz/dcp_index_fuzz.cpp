// SPDX-License-Identifier: Apache-2.0
// The file .metadata of a distributed checkpoint is a pickle: whatever is accepted describes
// tensors whose chunks lie in them and hold each element once, in files beside it, and can be
// written again.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "core/dcp/index.hpp"
#include "core/dcp/pickle.hpp"
#include "input.hpp"

namespace {

void require(bool holds) {
  if (!holds) {
    std::abort();
  }
}

void check_item(const limbeck::DcpItem& item) {
  require(!item.file.empty() && item.file.find('/') == std::string::npos && item.file != "..");
  require(item.length > 0 && item.offset + item.length > item.offset);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const auto index = limbeck::parse_dcp_index(bytes, "input/.metadata");
    bool is_text = true;
    for (const auto& [name, tensor] : index.tensors) {
      is_text = is_text && limbeck::is_utf8(name);
      require(tensor.type != nullptr);
      int64_t numel = 1;
      for (const int64_t length : tensor.sizes) {
        require(length >= 0);
        numel *= length;
      }
      int64_t covered = 0;
      for (const auto& chunk : tensor.chunks) {
        require(chunk.box.sizes.size() == tensor.sizes.size());
        for (size_t d = 0; d < tensor.sizes.size(); ++d) {
          require(chunk.box.offsets[d] >= 0 && chunk.box.sizes[d] >= 0 &&
                  chunk.box.offsets[d] + chunk.box.sizes[d] <= tensor.sizes[d]);
        }
        covered += chunk.box.numel();
        check_item(chunk.item);
        is_text = is_text && limbeck::is_utf8(chunk.item.file);
      }
      require(covered == numel);
    }
    for (const auto& [name, item] : index.values) {
      is_text = is_text && limbeck::is_utf8(name) && limbeck::is_utf8(item.file);
      check_item(item);
    }
    if (is_text) {
      const std::string written = limbeck::dcp_index_bytes(index);
      const auto again = limbeck::parse_dcp_index(written, "again/.metadata");
      require(limbeck::dcp_index_bytes(again) == written);
    }
  } catch (const limbeck::Error& error) {
    require(error.fault() == limbeck::Fault::kData);
  }
  return 0;
}
