// SPDX-License-Identifier: Apache-2.0
#include "core/dcp/archive.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/dcp/crc32.hpp"
#include "core/dcp/geometry.hpp"
#include "core/dcp/pickle.hpp"

namespace limbeck {
namespace {

using Kind = PickleNode::Kind;

// The structures of a zip archive, by their signatures; lengths without names and extra fields.
constexpr uint32_t kLocalHeader = 0x04034b50;
constexpr uint32_t kDescriptor = 0x08074b50;
constexpr uint32_t kDirectoryEntry = 0x02014b50;
constexpr uint32_t kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50;
constexpr uint32_t kEnd64Locator = 0x07064b50;
constexpr uint64_t kLocalHeaderBytes = 30;
constexpr uint64_t kDirectoryEntryBytes = 46;
constexpr uint64_t kEndBytes = 22;
constexpr uint64_t kEnd64Bytes = 56;
constexpr uint64_t kEnd64LocatorBytes = 20;
constexpr uint64_t kMax16 = 0xffff;
constexpr uint64_t kMax32 = 0xffffffff;

constexpr uint16_t kExtra64 = 0x0001;
constexpr uint16_t kExtraPadding = 0x4246;  // "FB", PyTorch's own
constexpr unsigned kEncryptedFlag = 1U << 0;
constexpr unsigned kDescriptorFlag = 1U << 3;

// A directory has a few entries of a few dozen bytes.
constexpr uint64_t kMaxDirectory = uint64_t{16} << 20;

class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}
  Writer& put(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i, value >>= 8) {
      out_ += static_cast<char>(value & 0xff);
    }
    return *this;
  }
  Writer& put16(uint64_t value) { return put(value, 2); }
  Writer& put32(uint64_t value) { return put(value, 4); }
  Writer& put64(uint64_t value) { return put(value, 8); }

 private:
  std::string& out_;
};

uint64_t number(std::string_view bytes, uint64_t at, int count) {
  uint64_t value = 0;
  for (int i = count; i-- > 0;) {
    value = (value << 8) | static_cast<uint8_t>(bytes[at + static_cast<uint64_t>(i)]);
  }
  return value;
}

const char* const kDamaged = "the file is damaged or was not written completely";

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw Error(Fault::kData, cat(where, ": ", what), kDamaged);
}

// ---- reading

struct Entry {
  std::string name;
  uint64_t offset = 0;  // of the payload within the item
  uint64_t bytes = 0;
  uint32_t crc = 0;
};

// The directory of an archive, and the records that are asked for.
class Archive {
 public:
  Archive(const DcpBytes& item, const std::string& where) : item_(item), where_(where) {
    read_directory();
    for (const Entry& entry : entries_) {
      const size_t slash = entry.name.find('/');
      if (slash != std::string::npos && entry.name.substr(slash) == "/data.pkl") {
        prefix_ = entry.name.substr(0, slash + 1);
      }
    }
    if (prefix_.empty()) {
      refuse(where_, "is no archive as torch.save writes it: it has no data.pkl");
    }
    if (const Entry* order = find("byteorder")) {
      const std::string name = content(*order, 16);
      if (name != "little") {
        throw Error(Fault::kData,
                    cat(where_, ": its byte order is '", name, "'; limbeck reads only 'little'"));
      }
    }
  }

  std::string pickle() { return content(*find("data.pkl"), item_.size()); }

  Entry payload(std::string_view key) {
    const Entry* entry = find(cat("data/", key));
    if (entry == nullptr) {
      refuse(where_, cat("its record data/", key, " is missing"));
    }
    return located(*entry);
  }

 private:
  const Entry* find(const std::string& name) const {
    const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
      return entry.name == prefix_ + name;
    });
    return found == entries_.end() ? nullptr : &*found;
  }

  std::string part(uint64_t offset, uint64_t count, const char* what) const {
    if (offset > item_.size() || count > item_.size() - offset) {
      refuse(where_, cat(what, " does not lie inside the item of ", item_.size(), " bytes"));
    }
    std::string bytes(count, '\0');
    item_.read(offset, bytes.data(), count);
    return bytes;
  }

  // `max_bytes` bounds what is allocated for what should be small.
  std::string content(const Entry& entry, uint64_t max_bytes) const {
    const Entry found = located(entry);
    if (found.bytes > max_bytes) {
      refuse(where_, cat("its record ", entry.name, " has ", found.bytes, " bytes"));
    }
    std::string bytes = part(found.offset, found.bytes, "a record");
    if (crc32_of(0, bytes.data(), bytes.size()) != found.crc) {
      refuse(where_, cat("the CRC of its record ", entry.name, " does not match its content"));
    }
    return bytes;
  }

  // With the offset of the payload in place of that of the local header.
  Entry located(const Entry& entry) const {
    const std::string header = part(entry.offset, kLocalHeaderBytes, "a local header");
    const uint64_t name_bytes = number(header, 26, 2);
    const uint64_t extra_bytes = number(header, 28, 2);
    const uint64_t begin = entry.offset + kLocalHeaderBytes + name_bytes + extra_bytes;
    if (number(header, 0, 4) != kLocalHeader || name_bytes != entry.name.size() ||
        part(entry.offset + kLocalHeaderBytes, name_bytes, "a local header") != entry.name) {
      refuse(where_,
             cat("the header of its record ", entry.name, " is not where the directory says"));
    }
    if (begin > directory_ || entry.bytes > directory_ - begin) {
      refuse(where_, cat("its record ", entry.name, " of ", entry.bytes,
                         " bytes does not fit before the directory"));
    }
    Entry found = entry;
    found.offset = begin;
    return found;
  }

  void read_directory() {
    if (item_.size() < kEndBytes) {
      refuse(where_, cat("an item of ", item_.size(), " bytes is no archive"));
    }
    const uint64_t end_at = item_.size() - kEndBytes;
    const std::string end = part(end_at, kEndBytes, "the end");
    if (number(end, 0, 4) != kEnd) {
      refuse(where_, "the item does not end as a zip archive does");
    }
    uint64_t count = number(end, 10, 2);
    uint64_t bytes = number(end, 12, 4);
    uint64_t offset = number(end, 16, 4);
    if (count == kMax16 || bytes == kMax32 || offset == kMax32) {
      if (end_at < kEnd64LocatorBytes) {
        refuse(where_, "the zip64 locator is missing");
      }
      const std::string locator =
          part(end_at - kEnd64LocatorBytes, kEnd64LocatorBytes, "the zip64 locator");
      if (number(locator, 0, 4) != kEnd64Locator) {
        refuse(where_, "the zip64 locator is missing");
      }
      const std::string end64 = part(number(locator, 8, 8), kEnd64Bytes, "the zip64 end record");
      if (number(end64, 0, 4) != kEnd64) {
        refuse(where_, "the zip64 end record is missing");
      }
      count = number(end64, 32, 8);
      bytes = number(end64, 40, 8);
      offset = number(end64, 48, 8);
    }
    if (bytes > kMaxDirectory) {
      refuse(where_, cat("its directory has ", bytes, " bytes"));
    }
    directory_ = offset;
    const std::string directory = part(offset, bytes, "the directory");
    uint64_t at = 0;
    for (uint64_t i = 0; i < count; ++i) {
      at += read_entry(std::string_view(directory).substr(at));
    }
  }

  // Returns its length.
  uint64_t read_entry(std::string_view bytes) {
    if (bytes.size() < kDirectoryEntryBytes || number(bytes, 0, 4) != kDirectoryEntry) {
      refuse(where_, "its directory has fewer entries than it should");
    }
    const uint64_t name_bytes = number(bytes, 28, 2);
    const uint64_t extra_bytes = number(bytes, 30, 2);
    const uint64_t length = kDirectoryEntryBytes + name_bytes + extra_bytes + number(bytes, 32, 2);
    if (length > bytes.size()) {
      refuse(where_, "an entry of its directory does not fit in it");
    }
    Entry entry;
    entry.name = bytes.substr(kDirectoryEntryBytes, name_bytes);
    entry.crc = static_cast<uint32_t>(number(bytes, 16, 4));
    uint64_t stored = number(bytes, 20, 4);
    entry.bytes = number(bytes, 24, 4);
    entry.offset = number(bytes, 42, 4);
    std::string_view extra = bytes.substr(kDirectoryEntryBytes + name_bytes, extra_bytes);
    while (extra.size() >= 4) {
      const uint64_t id = number(extra, 0, 2);
      const uint64_t size = number(extra, 2, 2);
      extra.remove_prefix(4);
      if (size > extra.size()) {
        refuse(where_, "an extra field of its directory does not fit in it");
      }
      if (id == kExtra64) {
        read_extra64(extra.substr(0, size), entry, stored);
      }
      extra.remove_prefix(size);
    }
    const uint64_t flags = number(bytes, 8, 2);
    if (number(bytes, 10, 2) != 0 || (flags & kEncryptedFlag) != 0 || stored != entry.bytes) {
      throw Error(Fault::kData, cat(where_, ": its record ", entry.name,
                                    " is compressed or encrypted; limbeck reads only plain ones"));
    }
    entries_.push_back(std::move(entry));
    return length;
  }

  // Holds those of the three that do not fit into 32 bits, in this order.
  void read_extra64(std::string_view extra, Entry& entry, uint64_t& stored) const {
    for (uint64_t* value : {&entry.bytes, &stored, &entry.offset}) {
      if (*value == kMax32) {
        if (extra.size() < 8) {
          refuse(where_, "a zip64 field of its directory is too short");
        }
        *value = number(extra, 0, 8);
        extra.remove_prefix(8);
      }
    }
  }

  const DcpBytes& item_;
  const std::string& where_;
  std::vector<Entry> entries_;
  std::string prefix_;
  uint64_t directory_ = 0;
};

// data.pkl of a tensor.
class TensorPickle {
 public:
  TensorPickle(const PickleGraph& graph, const std::string& where) : graph_(graph), where_(where) {
    const PickleNode& root = graph.root();
    const std::string function = graph.class_of(root);
    const bool is_typed = function == "torch._utils._rebuild_tensor_v2";
    if (root.kind != Kind::kObject ||
        (!is_typed && function != "torch._utils._rebuild_tensor_v3")) {
      refuse(where, cat("is no plain tensor but ", function.empty() ? "a value" : function));
    }
    const auto& arguments = list(root.items[1], is_typed ? 6 : 7);
    item.sizes = integers(arguments[2], "sizes");
    item.strides = integers(arguments[3], "strides");
    item.first = static_cast<uint64_t>(integer(arguments[1]));

    const PickleNode& storage = graph.at(arguments[0]);
    if (storage.kind != Kind::kPersistent) {
      fail("has no storage");
    }
    const auto& id = list(storage.items[0], 5);
    const PickleNode& storage_class = graph.at(id[1]);
    const PickleNode& key_node = graph.at(id[2]);
    if (graph.at(id[0]).text != "storage" || storage_class.kind != Kind::kGlobal ||
        key_node.kind != Kind::kText) {
      fail("has no storage");
    }
    key = key_node.text;
    if (is_typed) {
      item.type = find_dcp_storage(storage_class.name);
    } else {
      const PickleNode& type = graph.at(arguments[6]);
      item.type = type.kind == Kind::kGlobal ? find_dcp_type(type.name) : nullptr;
    }
    if (item.type == nullptr) {
      throw Error(
          Fault::kData,
          cat(where, ": its numbers are of a type that limbeck does not know: ",
              is_typed ? graph.class_of(storage_class) : graph.class_of(graph.at(arguments[6]))));
    }
    const auto count = static_cast<uint64_t>(integer(id[4]));
    const uint64_t unit = is_typed ? item.type->bytes : 1;
    if (count > std::numeric_limits<int64_t>::max() / unit) {
      fail("has a storage that is too large");
    }
    item.payload_bytes = count * unit;
    check_inside();
  }

  DcpTensorItem item;
  std::string key;  // of the record: "0"

 private:
  [[noreturn]] void fail(const std::string& what) const { refuse(where_, "its tensor " + what); }

  const std::vector<uint32_t>& list(uint32_t index, size_t count) const {
    const PickleNode& node = graph_.at(index);
    if (node.kind != Kind::kTuple || node.items.size() < count) {
      fail("is not described as PyTorch does");
    }
    return node.items;
  }
  int64_t integer(uint32_t index) const {
    const PickleNode& node = graph_.at(index);
    if (node.kind != Kind::kInt || node.number < 0) {
      fail("is not described by counts of at least 0");
    }
    return node.number;
  }
  std::vector<int64_t> integers(uint32_t index, const char* what) const {
    std::vector<int64_t> values;
    const auto& items = list(index, 0);
    if (items.size() > kMaxDcpDims) {
      fail(cat("has ", items.size(), " ", what));
    }
    for (const uint32_t value : items) {
      values.push_back(integer(value));
    }
    return values;
  }

  void check_inside() const {
    if (item.strides.size() != item.sizes.size()) {
      fail("has another number of strides than of sizes");
    }
    const auto numel = checked_numel(item.sizes, item.type->bytes);
    if (!numel) {
      fail("is too large");
    }
    if (*numel == 0) {
      return;
    }
    const uint64_t count = item.payload_bytes / item.type->bytes;
    uint64_t last = item.first;
    for (size_t d = 0; d < item.sizes.size() && last < count; ++d) {
      const auto steps = static_cast<uint64_t>(item.sizes[d] - 1);
      const auto stride = static_cast<uint64_t>(item.strides[d]);
      last = steps != 0 && stride > count / steps ? count : last + steps * stride;
    }
    if (last >= count) {
      fail("does not lie inside its storage");
    }
  }

  const PickleGraph& graph_;
  const std::string& where_;
};

}  // namespace

bool DcpTensorItem::is_row_major() const {
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] != 1 && strides[d] != stride) {
      return false;
    }
    stride *= std::max<int64_t>(sizes[d], 1);
  }
  return first == 0 && static_cast<uint64_t>(stride) * type->bytes == payload_bytes;
}

DcpTensorItem read_tensor_item(const DcpBytes& item, const std::string& where) {
  Archive archive(item, where);
  const std::string pickle = archive.pickle();
  const PickleGraph graph(pickle, where);
  TensorPickle tensor(graph, where);
  const Entry payload = archive.payload(tensor.key);
  if (payload.bytes != tensor.item.payload_bytes) {
    refuse(where, cat("its storage has ", payload.bytes, " bytes, but its tensor says ",
                      tensor.item.payload_bytes));
  }
  tensor.item.payload = payload.offset;
  tensor.item.crc = payload.crc;
  return std::move(tensor.item);
}

DcpValue read_value_item(const DcpBytes& item, const std::string& where) {
  const std::string pickle = Archive(item, where).pickle();
  const PickleGraph graph(pickle, where);
  return graph.value_of(graph.root());
}

// ---- writing

DcpArchive::DcpArchive(const std::string& pickle) {
  add_record("archive/data.pkl", pickle);
  add_record("archive/byteorder", "little");
  add_record("archive/version", "3\n");
}

DcpArchive::DcpArchive(std::string pickle, uint64_t payload_bytes) : DcpArchive(std::move(pickle)) {
  has_payload_ = true;
  payload_bytes_ = payload_bytes;
  // Last, so that no other record lies beyond 4 GiB. Its CRC follows it: it is not known yet.
  records_.push_back({"archive/data/0", head_.size(), payload_bytes, 0});
  const std::string& name = records_.back().name;
  const bool is_large = payload_bytes >= kMax32;
  const uint64_t large_bytes = is_large ? 4 + 16 : 0;
  const uint64_t before = head_.size() + kLocalHeaderBytes + name.size() + large_bytes + 4;
  const uint64_t padding = (kDcpAlignment - before % kDcpAlignment) % kDcpAlignment;
  Writer out(head_);
  out.put32(kLocalHeader).put16(0).put16(kDescriptorFlag).put16(0).put32(0);
  out.put32(0).put32(is_large ? kMax32 : 0).put32(is_large ? kMax32 : 0);
  out.put16(name.size()).put16(large_bytes + 4 + padding);
  head_ += name;
  if (is_large) {
    out.put16(kExtra64).put16(16).put64(0).put64(0);
  }
  out.put16(kExtraPadding).put16(padding);
  head_.append(padding, 'Z');
}

void DcpArchive::add_record(const char* name, std::string_view content) {
  records_.push_back(
      {name, head_.size(), content.size(), crc32_of(0, content.data(), content.size())});
  const Record& record = records_.back();
  Writer out(head_);
  out.put32(kLocalHeader).put16(0).put16(0).put16(0).put32(0);
  out.put32(record.crc).put32(record.bytes).put32(record.bytes);
  out.put16(record.name.size()).put16(0);
  head_ += record.name;
  head_ += content;
}

std::string DcpArchive::tail(uint32_t payload_crc) const {
  std::string tail;
  Writer out(tail);
  if (has_payload_) {
    const int size_bytes = payload_bytes_ >= kMax32 ? 8 : 4;
    out.put32(kDescriptor).put32(payload_crc);
    out.put(payload_bytes_, size_bytes).put(payload_bytes_, size_bytes);
  }
  const uint64_t directory = head_.size() + payload_bytes_ + tail.size();
  const uint64_t before = tail.size();
  for (const Record& record : records_) {
    const bool is_payload = has_payload_ && &record == &records_.back();
    const bool is_large = record.bytes >= kMax32;
    const uint64_t bytes = is_large ? kMax32 : record.bytes;
    out.put32(kDirectoryEntry).put16(0).put16(0).put16(is_payload ? kDescriptorFlag : 0).put16(0);
    out.put32(0).put32(is_payload ? payload_crc : record.crc).put32(bytes).put32(bytes);
    out.put16(record.name.size()).put16(is_large ? 4 + 16 : 0).put16(0);
    out.put16(0).put16(0).put32(0).put32(record.offset);
    tail += record.name;
    if (is_large) {
      out.put16(kExtra64).put16(16).put64(record.bytes).put64(record.bytes);
    }
  }
  const uint64_t directory_bytes = tail.size() - before;
  const uint64_t count = records_.size();
  if (directory >= kMax32) {
    const uint64_t end64 = directory + directory_bytes;
    out.put32(kEnd64).put64(kEnd64Bytes - 12).put16(45).put16(45).put32(0).put32(0);
    out.put64(count).put64(count).put64(directory_bytes).put64(directory);
    out.put32(kEnd64Locator).put32(0).put64(end64).put32(1);
  }
  out.put32(kEnd).put16(0).put16(0).put16(count).put16(count).put32(directory_bytes);
  out.put32(std::min(directory, kMax32)).put16(0);
  return tail;
}

std::string pickle_of_tensor(const DcpType& type, const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t numel = 1;
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    strides[d] = stride;
    numel *= sizes[d];
    stride *= std::max<int64_t>(sizes[d], 1);
  }
  PickleWriter out;
  const bool is_typed = type.storage != nullptr;
  out.global("torch._utils", is_typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
  out.mark();
  out.mark();
  out.text("storage");
  if (is_typed) {
    out.global("torch", type.storage);
  } else {
    out.global("torch.storage", "UntypedStorage");
  }
  out.text("0");
  out.text("cpu");
  out.integer(is_typed ? numel : numel * type.bytes);
  out.tuple();
  out.persistent();
  out.integer(0);
  out.integers(sizes);
  out.integers(strides);
  out.boolean(false);
  out.global("collections", "OrderedDict");
  out.empty_tuple();
  out.reduce();
  if (!is_typed) {
    out.global("torch", type.name);
  }
  out.tuple();
  out.reduce();
  return out.finish();
}

}  // namespace limbeck
