// SPDX-License-Identifier: Apache-2.0
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "error_message.hpp"

#include <doctest/doctest.h>

#include "core/dcp/archive.hpp"
#include "core/dcp/crc32.hpp"
#include "core/dcp/pickle.hpp"

namespace limbeck {
namespace {

using testing::has;
using testing::message_of;

// Head and tail of an item, and zeros of any number between them.
class Item : public DcpBytes {
 public:
  Item(std::string head, uint64_t zeros, std::string tail)
      : head_(std::move(head)), zeros_(zeros), tail_(std::move(tail)) {}
  explicit Item(std::string bytes) : Item(std::move(bytes), 0, "") {}

  uint64_t size() const override { return head_.size() + zeros_ + tail_.size(); }
  void read(uint64_t offset, char* out, uint64_t count) const override {
    REQUIRE(offset <= size());
    REQUIRE(count <= size() - offset);
    for (uint64_t i = 0; i < count; ++i, ++offset) {
      out[i] = offset < head_.size()            ? head_[offset]
               : offset < head_.size() + zeros_ ? '\0'
                                                : tail_[offset - head_.size() - zeros_];
    }
  }

 private:
  std::string head_;
  uint64_t zeros_;
  std::string tail_;
};

std::string small_item() {
  const auto& type = *find_dcp_type("float32");
  const std::string payload(24, 'x');
  const DcpArchive archive(pickle_of_tensor(type, {2, 3}), payload.size());
  return archive.head() + payload + archive.tail(crc32_of(0, payload.data(), payload.size()));
}

void replace(std::string& bytes, const std::string& old, const std::string& by) {
  REQUIRE(old.size() == by.size());
  const size_t at = bytes.find(old);
  REQUIRE(at != std::string::npos);
  bytes.replace(at, old.size(), by);
}

}  // namespace

TEST_CASE("dcp archive: CRC-32 equals zlib's for every length and alignment") {
  std::string bytes;
  uint32_t state = 1;
  for (int i = 0; i < 1500; ++i) {
    state = state * 1664525 + 1013904223;
    bytes += static_cast<char>(state >> 24);
  }
  for (const size_t begin : {0, 1, 7, 16}) {
    for (size_t size = 0; size < 600; ++size) {
      for (const uint32_t crc : {0U, 1U, 0xffffffffU, 0x12345678U}) {
        const auto expected = static_cast<uint32_t>(
            ::crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data() + begin), size));
        REQUIRE(crc32_of(crc, bytes.data() + begin, size) == expected);
      }
    }
  }
  // In pieces, as a stream comes.
  uint32_t crc = 0;
  for (size_t at = 0, size = 1; at < bytes.size(); at += size, size = size * 2 + 1) {
    crc = crc32_of(crc, bytes.data() + at, std::min(size, bytes.size() - at));
  }
  CHECK(crc == crc32_of(0, bytes.data(), bytes.size()));
  CHECK(crc32_of(0, "123456789", 9) == 0xcbf43926);
}

TEST_CASE("dcp archive: a tensor says what it is") {
  for (const char* name : {"float64", "float32", "float16", "bfloat16", "float8_e4m3fn",
                           "float8_e5m2", "complex64", "complex128", "int64", "int32", "int16",
                           "int8", "uint64", "uint32", "uint16", "uint8", "bool"}) {
    const auto* type = find_dcp_type(name);
    REQUIRE(type != nullptr);
    for (const auto& sizes : {std::vector<int64_t>{}, {5}, {2, 3}, {1, 70000, 2}, {0, 4}, {3, 0}}) {
      uint64_t bytes = type->bytes;
      for (const int64_t size : sizes) {
        bytes *= static_cast<uint64_t>(size);
      }
      const DcpArchive archive(pickle_of_tensor(*type, sizes), bytes);
      CHECK(archive.head().size() % kDcpAlignment == 0);
      const Item item(archive.head(), bytes, archive.tail(77));
      const auto tensor = read_tensor_item(item, "here");
      CHECK(tensor.type == type);
      CHECK(tensor.sizes == sizes);
      CHECK(tensor.payload == archive.head().size());
      CHECK(tensor.payload_bytes == bytes);
      CHECK(tensor.crc == 77);
      CHECK((bytes == 0 || tensor.is_row_major()));
    }
  }
}

TEST_CASE("dcp archive: from 4 GiB on in the zip64 form") {
  const auto& type = *find_dcp_type("uint8");
  const int64_t limit = 0xffffffff;
  for (const int64_t bytes : {limit - 4096, limit - 700, limit - 400, limit - 1, limit, limit + 1,
                              limit + 4096, int64_t{1} << 40}) {
    const DcpArchive archive(pickle_of_tensor(type, {bytes}), static_cast<uint64_t>(bytes));
    const std::string tail = archive.tail(5);
    CHECK(archive.head().size() % kDcpAlignment == 0);
    const auto tensor =
        read_tensor_item(Item(archive.head(), static_cast<uint64_t>(bytes), tail), "here");
    CHECK(tensor.payload_bytes == static_cast<uint64_t>(bytes));
    CHECK(tensor.sizes == std::vector<int64_t>{bytes});
    CHECK(tensor.payload == archive.head().size());
    const bool is_large = static_cast<int64_t>(archive.head().size()) + bytes + 16 >= limit;
    CHECK((tail.find("PK\x06\x06") != std::string::npos) == is_large);
  }
}

TEST_CASE("dcp archive: every cut and every changed byte of the headers is seen or harmless") {
  const std::string good = small_item();
  const auto expected = read_tensor_item(Item(good), "here");
  for (size_t size = 0; size < good.size(); ++size) {
    message_of([&] { read_tensor_item(Item(good.substr(0, size)), "here"); });
  }
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bytes = good;
    bytes[at] ^= 0x10;
    try {
      const auto tensor = read_tensor_item(Item(bytes), "here");
      CHECK(tensor.sizes == expected.sizes);
      CHECK(tensor.type == expected.type);
      CHECK(tensor.payload_bytes == expected.payload_bytes);
      // A wrong length of the local header is found by the CRC of the numbers.
      const bool is_whole =
          crc32_of(0, bytes.data() + tensor.payload, tensor.payload_bytes) == tensor.crc;
      CHECK((tensor.payload == expected.payload || !is_whole));
    } catch (const Error& error) {
      CHECK(error.fault() == Fault::kData);
    }
  }
}

TEST_CASE("dcp archive: what is refused, and why") {
  const auto refused = [](const std::string& bytes) {
    return message_of([&] { read_tensor_item(Item(bytes), "a.distcp: 'w'"); });
  };
  CHECK(has(refused(std::string(100, '\0')), "a.distcp: 'w': the item does not end as a zip"));
  {
    std::string bytes = small_item();
    replace(bytes, "little", "bigger");
    CHECK(has(refused(bytes), "the CRC of its record archive/byteorder"));
  }
  {
    const DcpArchive archive("\x80\x02N.");
    const std::string bytes = archive.head() + archive.tail(0);
    CHECK(has(refused(bytes), "is no plain tensor but a value"));
    std::string other = bytes;
    replace(other, "data.pkl", "data.txt");  // in its header and in the directory
    replace(other, "data.pkl", "data.txt");
    CHECK(has(refused(other), "it has no data.pkl"));
  }
  {  // More numbers than bytes.
    const auto& type = *find_dcp_type("float32");
    const DcpArchive archive(pickle_of_tensor(type, {2, 3}), 20);
    CHECK(has(refused(archive.head() + std::string(20, 'x') + archive.tail(0)),
              "its storage has 20 bytes, but its tensor says 24"));
  }
}

TEST_CASE("dcp archive: tensors beyond their storage are refused, parts of it are not") {
  // float32 numbers, `count` of them in the storage.
  const auto item_of = [](int64_t count, int64_t first, const std::vector<int64_t>& sizes,
                          const std::vector<int64_t>& strides) {
    PickleWriter out;
    out.global("torch._utils", "_rebuild_tensor_v2");
    out.mark();
    out.mark();
    out.text("storage");
    out.global("torch", "FloatStorage");
    out.text("0");
    out.text("cpu");
    out.integer(count);
    out.tuple();
    out.persistent();
    out.integer(first);
    out.integers(sizes);
    out.integers(strides);
    out.boolean(false);
    out.empty_dict();
    out.tuple();
    out.reduce();
    const auto bytes = static_cast<uint64_t>(4 * count);
    const DcpArchive archive(out.finish(), bytes);
    return read_tensor_item(Item(archive.head(), bytes, archive.tail(0)), "here");
  };
  CHECK(item_of(6, 0, {2, 3}, {3, 1}).is_row_major());
  CHECK(item_of(6, 0, {1, 6}, {99, 1}).is_row_major());
  CHECK_FALSE(item_of(6, 0, {3, 2}, {1, 3}).is_row_major());
  CHECK_FALSE(item_of(6, 2, {2, 2}, {2, 1}).is_row_major());
  CHECK_FALSE(item_of(7, 0, {2, 3}, {3, 1}).is_row_major());
  CHECK(item_of(6, 5, {4}, {0}).first == 5);
  const int64_t large = int64_t{1} << 40;
  for (const auto& [first, sizes, strides] :
       {std::tuple<int64_t, std::vector<int64_t>, std::vector<int64_t>>{1, {2, 3}, {3, 1}},
        {0, {2, 3}, {4, 1}},
        {6, {1}, {1}},
        {0, {2, 2}, {(large - 1) << 22, 1}},
        {0, {large, 2}, {large, 1}}}) {
    CHECK(has(message_of([&, f = first, s = sizes, t = strides] { item_of(6, f, s, t); }),
              "does not lie inside its storage"));
  }
  CHECK(has(message_of([&] { item_of(6, 0, {2, 3}, {1}); }), "another number of strides"));
  CHECK(has(message_of([&] { item_of(6, -1, {2}, {1}); }), "counts of at least 0"));
  CHECK(has(message_of([&] { item_of(6, 0, {large, large}, {1, 1}); }), "is too large"));
}

TEST_CASE("dcp archive: values") {
  PickleWriter pickle;
  pickle.value({std::string("{\"a\": 1}")});
  const DcpArchive archive(pickle.finish());
  const auto value = read_value_item(Item(archive.head() + archive.tail(0)), "here");
  CHECK(std::get<std::string>(value.value) == "{\"a\": 1}");
}

}  // namespace limbeck
