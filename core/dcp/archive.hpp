// SPDX-License-Identifier: Apache-2.0
// One item of a DCP data file: a zip archive with uncompressed records, as torch.save writes it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/export.hpp"
#include "core/dcp/index.hpp"
#include "core/dcp/value.hpp"

namespace limbeck {

// Where the payload begins, in the item and in the file.
inline constexpr uint64_t kDcpAlignment = 64;

// ---- reading

// The bytes of one item.
class LIMBECK_API DcpBytes {
 public:
  virtual ~DcpBytes() = default;
  virtual uint64_t size() const = 0;
  // Copies [offset, offset + count), which is inside. Throws Error(kData).
  virtual void read(uint64_t offset, char* out, uint64_t count) const = 0;
};

struct DcpTensorItem {
  const DcpType* type = nullptr;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;  // in numbers, not negative; all numbers are inside the payload
  uint64_t first = 0;            // number of the payload that the tensor begins with
  uint64_t payload = 0;          // offset within the item
  uint64_t payload_bytes = 0;
  uint32_t crc = 0;  // of the payload

  LIMBECK_API bool is_row_major() const;  // and nothing else is in the payload
};

// What an item says of itself; of the payload, nothing is read. `where` names the item in messages.
// Memory and time are bounded by the item's headers, which are inside it. Throws Error(kData).
LIMBECK_API DcpTensorItem read_tensor_item(const DcpBytes& item, const std::string& where);
LIMBECK_API DcpValue read_value_item(const DcpBytes& item, const std::string& where);

// ---- writing

// An archive around a payload of `payload_bytes`: head, payload, tail.
class LIMBECK_API DcpArchive {
 public:
  // A value: the head is all but the directory, and there is no payload.
  explicit DcpArchive(const std::string& pickle);
  DcpArchive(std::string pickle, uint64_t payload_bytes);

  // The length is a multiple of kDcpAlignment if there is a payload.
  const std::string& head() const { return head_; }
  // `payload_crc`: of the payload's bytes.
  std::string tail(uint32_t payload_crc) const;

 private:
  struct Record {
    std::string name;
    uint64_t offset;
    uint64_t bytes;
    uint32_t crc;
  };

  void add_record(const char* name, std::string_view content);

  std::string head_;
  std::vector<Record> records_;
  bool has_payload_ = false;
  uint64_t payload_bytes_ = 0;
};

// The pickle of a row-major tensor whose numbers are the record data/0.
LIMBECK_API std::string pickle_of_tensor(const DcpType& type, const std::vector<int64_t>& sizes);

}  // namespace limbeck
