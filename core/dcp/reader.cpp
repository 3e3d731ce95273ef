// SPDX-License-Identifier: Apache-2.0
#include "core/dcp/reader.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/dcp/archive.hpp"
#include "core/dcp/crc32.hpp"
#include "core/dcp/geometry.hpp"

namespace limbeck {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBlock = size_t{256} << 10;

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw Error(Fault::kData, cat(where, ": ", what));
}

std::string reason() { return std::error_code(errno, std::generic_category()).message(); }

// One item of an open file.
class ItemFile : public DcpBytes {
 public:
  ItemFile(const fs::path& folder, const DcpItem& item, std::string where)
      : item_(item), where_(std::move(where)) {
    // Not blocking: a pipe of that name must not stop us.
    number_ = ::open((folder / item.file).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (number_ < 0) {
      fail(where_, cat("cannot open the file: ", reason()));
    }
    struct stat status = {};
    const bool is_file = ::fstat(number_, &status) == 0 && S_ISREG(status.st_mode);
    if (!is_file || static_cast<uint64_t>(status.st_size) < item.offset + item.length) {
      ::close(number_);
      fail(where_, is_file ? cat("the file has ", status.st_size, " bytes, needed are ",
                                 item.offset + item.length)
                           : "is not a regular file");
    }
  }
  ~ItemFile() override { ::close(number_); }
  ItemFile(const ItemFile&) = delete;
  ItemFile& operator=(const ItemFile&) = delete;

  uint64_t size() const override { return item_.length; }

  void read(uint64_t offset, char* out, uint64_t count) const override {
    while (count > 0) {
      const ssize_t n = ::pread(number_, out, count, static_cast<off_t>(item_.offset + offset));
      if (n == 0) {
        fail(where_, "the file ended while it was being read");
      }
      if (n < 0 && errno != EINTR) {
        fail(where_, cat("cannot read the file: ", reason()));
      }
      const auto done = static_cast<uint64_t>(std::max<ssize_t>(n, 0));
      offset += done;
      out += done;
      count -= done;
    }
  }

 private:
  const DcpItem& item_;
  std::string where_;
  int number_;
};

// A payload from front to back, with its CRC.
class PayloadStream {
 public:
  PayloadStream(const DcpBytes& item, const DcpTensorItem& tensor, bool checks_sum)
      : item_(item),
        tensor_(tensor),
        checks_sum_(checks_sum),
        buffer_(std::min<uint64_t>(kBlock, tensor.payload_bytes)) {}

  // Goes to `offset`, which is not before where it is.
  void skip_to(uint64_t offset) {
    while (checks_sum_ && at_ < offset) {
      at_ += fill(offset - at_);
    }
    at_ = offset;
  }

  void read(char* out, uint64_t count) {
    while (count > 0) {
      uint64_t done = 0;
      if (at_ >= buffered_end_ && count >= buffer_.size()) {
        // In blocks, so that the CRC finds them in the cache.
        done = buffer_.size();
        item_.read(tensor_.payload + at_, out, done);
        sum(out, done);
      } else {
        done = fill(count);
        std::memcpy(out, buffer_.data() + (at_ - buffered_begin_), done);
      }
      at_ += done;
      out += done;
      count -= done;
    }
  }

  // Whether the rest was as it should be too.
  bool finish() {
    skip_to(tensor_.payload_bytes);
    return !checks_sum_ || crc_ == tensor_.crc;
  }

 private:
  void sum(const char* bytes, uint64_t count) {
    if (checks_sum_) {
      crc_ = crc32_of(crc_, bytes, count);
    }
  }

  // Makes bytes at `at_` be in the buffer; returns how many, at most `count`.
  uint64_t fill(uint64_t count) {
    if (at_ >= buffered_end_) {
      const uint64_t size = std::min<uint64_t>(buffer_.size(), tensor_.payload_bytes - at_);
      item_.read(tensor_.payload + at_, buffer_.data(), size);
      sum(buffer_.data(), size);
      buffered_begin_ = at_;
      buffered_end_ = at_ + size;
    }
    return std::min(count, buffered_end_ - at_);
  }

  const DcpBytes& item_;
  const DcpTensorItem& tensor_;
  const bool checks_sum_;
  std::vector<char> buffer_;
  uint64_t at_ = 0;
  uint64_t buffered_begin_ = 0;
  uint64_t buffered_end_ = 0;
  uint32_t crc_ = 0;
};

std::vector<uint64_t> row_major_strides(const std::vector<int64_t>& sizes) {
  std::vector<uint64_t> strides(sizes.size());
  uint64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= static_cast<uint64_t>(std::max<int64_t>(sizes[d], 1));
  }
  return strides;
}

// Calls run(from, to, count) for the runs of neighbouring numbers of `common` that both sides have:
// `from` in the chunk, ascending if its strides are row-major, `to` in the wanted box.
template <class Run>
void for_each_run(const DcpBox& common,
                  const DcpBox& chunk,
                  const std::vector<uint64_t>& chunk_strides,
                  const DcpBox& wanted,
                  const Run& run) {
  const size_t dims = common.sizes.size();
  const auto wanted_strides = row_major_strides(wanted.sizes);
  uint64_t from = 0;
  uint64_t to = 0;
  for (size_t d = 0; d < dims; ++d) {
    from += static_cast<uint64_t>(common.offsets[d] - chunk.offsets[d]) * chunk_strides[d];
    to += static_cast<uint64_t>(common.offsets[d] - wanted.offsets[d]) * wanted_strides[d];
  }
  // The last dimensions of which both sides have the numbers one after the other.
  uint64_t count = 1;
  size_t outer = dims;
  while (outer > 0 && (common.sizes[outer - 1] == 1 ||
                       (chunk_strides[outer - 1] == count && wanted_strides[outer - 1] == count))) {
    count *= static_cast<uint64_t>(common.sizes[--outer]);
  }
  std::vector<int64_t> index(outer, 0);
  for (;;) {
    run(from, to, count);
    size_t d = outer;
    for (; d > 0; --d) {
      const size_t k = d - 1;
      if (++index[k] < common.sizes[k]) {
        from += chunk_strides[k];
        to += wanted_strides[k];
        break;
      }
      index[k] = 0;
      from -= chunk_strides[k] * static_cast<uint64_t>(common.sizes[k] - 1);
      to -= wanted_strides[k] * static_cast<uint64_t>(common.sizes[k] - 1);
    }
    if (d == 0) {
      return;
    }
  }
}

}  // namespace

DcpReader::DcpReader(const fs::path& folder) : folder_(folder), index_(read_dcp_index(folder)) {
  std::map<std::string, uint64_t> needed;
  const auto add = [&](const DcpItem& item) {
    auto& bytes = needed[item.file];
    bytes = std::max(bytes, item.offset + item.length);
  };
  for (const auto& [name, tensor] : index_.tensors) {
    for (const auto& chunk : tensor.chunks) {
      add(chunk.item);
    }
  }
  for (const auto& [name, item] : index_.values) {
    add(item);
  }
  for (const auto& [file, bytes] : needed) {
    const fs::path path = folder / file;
    std::error_code failed;
    if (!fs::is_regular_file(path, failed)) {
      fail(path.string(), cat("the file is missing, which ", kDcpIndexFile, " names"));
    }
    const uint64_t size = fs::file_size(path, failed);
    if (failed || size < bytes) {
      fail(path.string(), failed ? failed.message()
                                 : cat("the file is cut short: it has ", size, " bytes, and by ",
                                       kDcpIndexFile, " at least ", bytes));
    }
  }
}

std::string DcpReader::where(const std::string& name, const DcpItem& item) const {
  return cat((folder_ / item.file).string(), ": '", name, "' at byte ", item.offset);
}

void DcpReader::read(const std::string& name,
                     const DcpBox& box,
                     std::byte* out,
                     bool checks_sums) const {
  const auto found = index_.tensors.find(name);
  if (found == index_.tensors.end()) {
    fail(folder_.string(), cat("has no tensor '", name, "'"));
  }
  const DcpTensor& tensor = found->second;
  if (!is_inside(box, tensor.sizes)) {
    fail(folder_.string(), cat("the part at ", show(box.offsets), " of sizes ", show(box.sizes),
                               " is not in the tensor '", name, "' of sizes ", show(tensor.sizes)));
  }
  for (const DcpChunk& chunk : tensor.chunks) {
    if (const auto common = intersection(chunk.box, box)) {
      read_chunk(name, tensor, chunk, *common, box, reinterpret_cast<char*>(out), checks_sums);
    }
  }
}

void DcpReader::read(const std::string& name, std::byte* out, bool checks_sums) const {
  const auto found = index_.tensors.find(name);
  if (found == index_.tensors.end()) {
    fail(folder_.string(), cat("has no tensor '", name, "'"));
  }
  const auto& sizes = found->second.sizes;
  read(name, {std::vector<int64_t>(sizes.size(), 0), sizes}, out, checks_sums);
}

void DcpReader::read_chunk(const std::string& name,
                           const DcpTensor& tensor,
                           const DcpChunk& chunk,
                           const DcpBox& common,
                           const DcpBox& wanted,
                           char* out,
                           bool checks_sums) const {
  const std::string place = where(name, chunk.item);
  const ItemFile file(folder_, chunk.item, place);
  const DcpTensorItem item = read_tensor_item(file, place);
  if (item.type != tensor.type || item.sizes != chunk.box.sizes) {
    fail(place,
         cat("the item is ", item.type->name, " of sizes ", show(item.sizes), ", by ",
             kDcpIndexFile, " it is ", tensor.type->name, " of sizes ", show(chunk.box.sizes)));
  }
  const uint64_t unit = tensor.type->bytes;
  bool is_whole = true;
  if (item.is_row_major()) {
    PayloadStream payload(file, item, checks_sums);
    for_each_run(common, chunk.box, row_major_strides(item.sizes), wanted,
                 [&](uint64_t from, uint64_t to, uint64_t count) {
                   payload.skip_to(from * unit);
                   payload.read(out + to * unit, count * unit);
                 });
    is_whole = payload.finish();
  } else {
    // Transposed, or a part of a larger storage.
    std::vector<char> payload(item.payload_bytes);
    file.read(item.payload, payload.data(), payload.size());
    is_whole = !checks_sums || crc32_of(0, payload.data(), payload.size()) == item.crc;
    const std::vector<uint64_t> strides(item.strides.begin(), item.strides.end());
    for_each_run(
        common, chunk.box, strides, wanted, [&](uint64_t from, uint64_t to, uint64_t count) {
          std::memcpy(out + to * unit, payload.data() + (item.first + from) * unit, count * unit);
        });
  }
  if (!is_whole) {
    throw Error(Fault::kData,
                cat(place, ": the CRC of the ", item.payload_bytes,
                    " bytes of its numbers does not match them"),
                "the file is damaged; use another checkpoint");
  }
}

DcpValue DcpReader::value(const std::string& name) const {
  const auto found = index_.values.find(name);
  if (found == index_.values.end()) {
    fail(folder_.string(), cat("has no value '", name, "'"));
  }
  const std::string place = where(name, found->second);
  return read_value_item(ItemFile(folder_, found->second, place), place);
}

}  // namespace limbeck
