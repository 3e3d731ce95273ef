// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/safetensors.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <set>
#include <string_view>
#include <system_error>
#include <tuple>

#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/weights/safetensors_header.hpp"

namespace limbeck {
namespace {

using nlohmann::json;

constexpr size_t kAlignment = 8;
const char kMetadata[] = "__metadata__";

struct DtypeName {
  const char* name;
  at::ScalarType dtype;
};
// What limbeck reads and writes of the format's types, in the order of the format's own list, by
// which files are sorted: later ones come first.
constexpr std::array kDtypes = {
    DtypeName{"BOOL", at::kBool},
    DtypeName{"U8", at::kByte},
    DtypeName{"I8", at::kChar},
    DtypeName{"F8_E5M2", at::kFloat8_e5m2},
    DtypeName{"F8_E4M3", at::kFloat8_e4m3fn},
    DtypeName{"I16", at::kShort},
    DtypeName{"U16", at::kUInt16},
    DtypeName{"F16", at::kHalf},
    DtypeName{"BF16", at::kBFloat16},
    DtypeName{"I32", at::kInt},
    DtypeName{"U32", at::kUInt32},
    DtypeName{"F32", at::kFloat},
    DtypeName{"F64", at::kDouble},
    DtypeName{"I64", at::kLong},
    DtypeName{"U64", at::kUInt64},
};

std::string dtype_list() {
  std::vector<std::string> names;
  for (const auto& entry : kDtypes) {
    names.emplace_back(entry.name);
  }
  return join(names);
}

at::ScalarType dtype_of(std::string_view name) {
  const auto found = std::find_if(kDtypes.begin(), kDtypes.end(),
                                  [&](const auto& entry) { return entry.name == name; });
  return found == kDtypes.end() ? at::ScalarType::Undefined : found->dtype;
}

// Place in kDtypes; its size if there is none.
size_t dtype_rank(at::ScalarType dtype) {
  const auto found = std::find_if(kDtypes.begin(), kDtypes.end(),
                                  [&](const auto& entry) { return entry.dtype == dtype; });
  return static_cast<size_t>(found - kDtypes.begin());
}

[[noreturn]] void refuse(const std::filesystem::path& path,
                         const std::string& what,
                         const std::string& hint = "") {
  throw Error(Fault::kData, cat(path.string(), ": ", what), hint);
}

[[noreturn]] void refuse_system(const std::filesystem::path& path, const char* operation) {
  const int code = errno;
  refuse(path, cat("cannot ", operation, ": ", std::generic_category().message(code)));
}

const char* const kDamaged = "the file is damaged or was not written completely; get it again";

// ---- writing

// A file descriptor with a name, both gone at the end unless keep() was called.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& beside) {
    static std::atomic<uint64_t> counter{0};
    do {
      path_ = beside;
      path_ += cat(".tmp.", ::getpid(), ".", counter++);
      descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (descriptor_ < 0 && errno == EEXIST);
    if (descriptor_ < 0) {
      refuse_system(path_, "create this file");
    }
  }
  ~TemporaryFile() {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
    if (!path_.empty()) {
      ::unlink(path_.c_str());
    }
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(const void* data, size_t size) {
    const auto* bytes = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t written = ::write(descriptor_, bytes, size);
      if (written < 0 && errno != EINTR) {
        refuse_system(path_, "write to this file");
      }
      if (written > 0) {
        bytes += written;
        size -= static_cast<size_t>(written);
      }
    }
  }

  void rename_to(const std::filesystem::path& path) {
    if (::fsync(descriptor_) != 0) {
      refuse_system(path_, "flush this file to disk");
    }
    const int descriptor = std::exchange(descriptor_, -1);
    if (::close(descriptor) != 0) {
      refuse_system(path_, "close this file");
    }
    if (::rename(path_.c_str(), path.c_str()) != 0) {
      refuse_system(path, "replace this file");
    }
    path_.clear();
    sync_folder(path);
  }

 private:
  // Without it, the new name may be lost in a power cut. Some file systems cannot do it.
  static void sync_folder(const std::filesystem::path& path) {
    const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
    const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor >= 0) {
      ::fsync(descriptor);
      ::close(descriptor);
    }
  }

  std::filesystem::path path_;
  int descriptor_ = -1;
};

std::string header_text(const std::filesystem::path& path,
                        const NamedTensors& sorted,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) {
    header[kMetadata] = metadata;
  }
  std::set<std::string> names;
  uint64_t offset = 0;
  for (const auto& [name, tensor] : sorted) {
    if (name == kMetadata || !names.insert(name).second) {
      refuse(path, cat("a tensor cannot be written as '", name, "': the name is ",
                       name == kMetadata ? "reserved" : "used twice"));
    }
    const uint64_t bytes = tensor.nbytes();
    // ordered_json looks every name up in a list; appending keeps large headers linear.
    auto& entries = header.get_ref<nlohmann::ordered_json::object_t&>();
    nlohmann::ordered_json entry;
    entry["dtype"] = kDtypes[dtype_rank(tensor.scalar_type())].name;
    entry["shape"] = tensor.sizes().vec();
    entry["data_offsets"] = {offset, offset + bytes};
    static_cast<nlohmann::ordered_json::object_t::Container&>(entries).emplace_back(
        name, std::move(entry));
    offset += bytes;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const json::exception& error) {
    refuse(path, cat("a name or metadata entry is not valid UTF-8: ", error.what()));
  }
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  if (text.size() > kSafetensorsMaxHeader) {
    refuse(path, cat("the header needs ", text.size(), " bytes; the format allows ",
                     kSafetensorsMaxHeader));
  }
  return text;
}

}  // namespace

// Read by all, written by nobody: private, so that a stray write stays in this process, and
// without reserving swap for the pages that such writes could need.
class SafetensorsFile::Mapping {
 public:
  explicit Mapping(const std::filesystem::path& path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
      refuse_system(path, "open this file");
    }
    struct stat status = {};
    const bool is_known = ::fstat(descriptor, &status) == 0;
    if (!is_known || !S_ISREG(status.st_mode)) {
      ::close(descriptor);
      refuse(path, "is not a regular file");
    }
    size_ = static_cast<size_t>(status.st_size);
    if (size_ < kSafetensorsLengthBytes) {
      ::close(descriptor);
      refuse(path, cat("is not a safetensors file: it has only ", size_, " bytes"), kDamaged);
    }
    void* address =
        ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor, 0);
    const int code = errno;
    ::close(descriptor);
    if (address == MAP_FAILED) {
      errno = code;
      refuse_system(path, "map this file into memory");
    }
    address_ = static_cast<std::byte*>(address);
  }
  ~Mapping() { ::munmap(address_, size_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* at(uint64_t offset) const { return address_ + offset; }
  uint64_t size() const { return size_; }

 private:
  std::byte* address_ = nullptr;
  size_t size_ = 0;
};

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path), mapping_(std::make_shared<const Mapping>(path)) {
  const std::string_view whole(reinterpret_cast<const char*>(mapping_->at(0)), mapping_->size());
  auto header = parse_safetensors_header(whole, whole.size(), path);
  data_offset_ = header.data_offset;
  metadata_ = std::move(header.metadata);
  for (auto& [name, entry] : header.tensors) {
    tensors_.emplace(name, TensorInfo{dtype_of(entry.type->name), entry.type->name,
                                      std::move(entry.sizes), entry.begin, entry.end});
  }
}

const TensorInfo& SafetensorsFile::info(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    std::vector<std::string> names;
    for (const auto& [known, unused] : tensors_) {
      names.push_back(known);
    }
    const auto close = nearest(name, names);
    refuse(path_, cat("has no tensor '", name, "'"),
           close.empty() ? "" : cat("the nearest name is '", close, "'"));
  }
  return found->second;
}

const std::byte* SafetensorsFile::data(const std::string& name) const {
  return mapping_->at(data_offset_ + info(name).begin);
}

at::Tensor SafetensorsFile::tensor(const std::string& name) const {
  const auto& entry = info(name);
  if (entry.dtype == at::ScalarType::Undefined) {
    refuse(path_, cat("tensor '", name, "': limbeck cannot read dtype ", entry.type),
           "it reads " + dtype_list() + "; convert the file");
  }
  const auto options = at::TensorOptions().dtype(entry.dtype);
  if (entry.bytes() == 0) {
    return at::empty(entry.sizes, options);
  }
  auto* bytes = mapping_->at(data_offset_ + entry.begin);
  if (entry.dtype == at::kBool &&
      std::any_of(bytes, bytes + entry.bytes(), [](std::byte b) { return b > std::byte{1}; })) {
    refuse(path_, cat("tensor '", name, "': a byte of a BOOL tensor is neither 0 nor 1"), kDamaged);
  }
  if (reinterpret_cast<uintptr_t>(bytes) % c10::elementSize(entry.dtype) != 0) {
    auto copy = at::empty(entry.sizes, options);
    std::memcpy(copy.mutable_data_ptr(), bytes, entry.bytes());
    return copy;
  }
  return at::from_blob(
      bytes, entry.sizes, [mapping = mapping_](void*) {}, options);
}

void write_safetensors(const std::filesystem::path& path,
                       const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata) {
  NamedTensors sorted = tensors;
  for (const auto& [name, tensor] : sorted) {
    if (!tensor.defined() || tensor.layout() != at::kStrided ||
        dtype_rank(tensor.scalar_type()) == kDtypes.size()) {
      refuse(path,
             cat("tensor '", name, "' cannot be written: it is ",
                 tensor.defined() ? cat("of type ", tensor.toString()) : "undefined"),
             "supported are dense tensors of dtype " + dtype_list());
    }
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    const size_t rank_a = dtype_rank(a.second.scalar_type());
    const size_t rank_b = dtype_rank(b.second.scalar_type());
    return rank_a != rank_b ? rank_a > rank_b : a.first < b.first;
  });
  const std::string header = header_text(path, sorted, metadata);
  std::array<unsigned char, kSafetensorsLengthBytes> length{};
  for (size_t i = 0; i < length.size(); ++i) {
    length[i] = static_cast<unsigned char>(header.size() >> (8 * i));
  }

  TemporaryFile file(path);
  file.write(length.data(), length.size());
  file.write(header.data(), header.size());
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : sorted) {
    const auto values = tensor.detach().to(at::kCPU).contiguous();
    if (values.nbytes() > 0) {
      file.write(values.const_data_ptr(), values.nbytes());
    }
  }
  file.rename_to(path);
}

}  // namespace limbeck
