// SPDX-License-Identifier: Apache-2.0
// An item of a .distcp file is a zip archive with a pickle in it: whatever is accepted as a tensor
// has all its numbers inside the item, and nothing is read outside.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "core/base/error.hpp"
#include "core/dcp/archive.hpp"
#include "input.hpp"

namespace {

class Input : public limbeck::DcpBytes {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  uint64_t size() const override { return size_; }
  void read(uint64_t offset, char* out, uint64_t count) const override {
    if (offset > size_ || count > size_ - offset) {
      std::abort();
    }
    if (count > 0) {
      std::memcpy(out, data_ + offset, count);
    }
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

void check_tensor(const limbeck::DcpTensorItem& tensor, uint64_t size) {
  if (tensor.payload > size || tensor.payload_bytes > size - tensor.payload) {
    std::abort();
  }
  uint64_t last = tensor.first;
  for (size_t d = 0; d < tensor.sizes.size(); ++d) {
    if (tensor.sizes[d] == 0) {
      return;
    }
    last += static_cast<uint64_t>(tensor.sizes[d] - 1) * static_cast<uint64_t>(tensor.strides[d]);
  }
  if ((last + 1) * tensor.type->bytes > tensor.payload_bytes) {
    std::abort();
  }
  tensor.is_row_major();
}

template <class Read>
void check_refusal(const Read& read) {
  try {
    read();
  } catch (const limbeck::Error& error) {
    if (error.fault() != limbeck::Fault::kData) {
      std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Input item(data, size);
  check_refusal([&] { check_tensor(limbeck::read_tensor_item(item, "input"), size); });
  check_refusal([&] { limbeck::read_value_item(item, "input"); });
  return 0;
}
