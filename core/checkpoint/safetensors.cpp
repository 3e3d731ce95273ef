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
#include "core/checkpoint/strict_json.hpp"

namespace limbeck {
namespace {

using nlohmann::json;

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeader = 100'000'000;  // the limit of the Python library too
constexpr size_t kAlignment = 8;
constexpr size_t kMaxDims = 64;  // of libtorch's iterators
const char kMetadata[] = "__metadata__";

struct DtypeName {
  const char* name;
  at::ScalarType dtype;
};
// In the order of the format's own list, by which files are sorted: later ones come first.
constexpr std::array kDtypes = {
    DtypeName{"BOOL", at::kBool},
    DtypeName{"U8", at::kByte},
    DtypeName{"I8", at::kChar},
    DtypeName{"F8_E5M2", at::kFloat8_e5m2},
    DtypeName{"F8_E4M3", at::kFloat8_e4m3fn},
    DtypeName{"I16", at::kShort},
    DtypeName{"F16", at::kHalf},
    DtypeName{"BF16", at::kBFloat16},
    DtypeName{"I32", at::kInt},
    DtypeName{"F32", at::kFloat},
    DtypeName{"F64", at::kDouble},
    DtypeName{"I64", at::kLong},
};

std::string dtype_list() {
  std::vector<std::string> names;
  for (const auto& entry : kDtypes) {
    names.emplace_back(entry.name);
  }
  return join(names);
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

// ---- reading a header

class HeaderParser {
 public:
  HeaderParser(const std::filesystem::path& path, uint64_t data_size)
      : path_(path), data_size_(data_size) {}

  void parse(std::string_view text,
             std::map<std::string, std::string>& metadata,
             std::map<std::string, TensorInfo>& tensors) {
    if (text.empty() || text.front() != '{') {
      refuse(path_, "is not a safetensors file: its header does not begin with '{'", kDamaged);
    }
    const json header = parse_strict(text, path_, "its header");
    for (const auto& [name, value] : header.items()) {
      if (name == kMetadata) {
        read_metadata(value, metadata);
      } else {
        tensors.emplace(name, read_tensor(name, value));
      }
    }
    check_cover(tensors);
  }

 private:
  void read_metadata(const json& value, std::map<std::string, std::string>& metadata) {
    if (!value.is_object()) {
      refuse(path_, cat("__metadata__ is ", value.type_name(), ", expected an object"));
    }
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) {
        refuse(path_, cat("__metadata__ '", key, "' is ", text.type_name(), ", expected a string"));
      }
      metadata.emplace(key, text.get<std::string>());
    }
  }

  [[noreturn]] void refuse_tensor(const std::string& name, const std::string& what) {
    refuse(path_, cat("tensor '", name, "': ", what), kDamaged);
  }

  uint64_t read_count(const std::string& name, const json& value, const char* what) {
    if (!value.is_number_unsigned()) {
      refuse_tensor(name,
                    cat(what, " holds ", value.dump(), ", expected an integer of at least 0"));
    }
    return value.get<uint64_t>();
  }

  TensorInfo read_tensor(const std::string& name, const json& value) {
    if (!value.is_object()) {
      refuse_tensor(name, cat("its entry is ", value.type_name(), ", expected an object"));
    }
    for (const auto& [key, unused] : value.items()) {
      if (key != "dtype" && key != "shape" && key != "data_offsets") {
        refuse_tensor(name, cat("its entry has the unknown key '", key, "'"));
      }
    }
    for (const char* key : {"dtype", "shape", "data_offsets"}) {
      if (!value.contains(key)) {
        refuse_tensor(name, cat("its entry has no '", key, "'"));
      }
    }
    TensorInfo info;
    const auto& dtype = value["dtype"];
    const auto found = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const auto& entry) {
      return dtype.is_string() && dtype.get_ref<const std::string&>() == entry.name;
    });
    if (found == kDtypes.end()) {
      refuse(path_, cat("tensor '", name, "': dtype ", dtype.dump(), " is not supported"),
             "supported are " + dtype_list());
    }
    info.dtype = found->dtype;

    const auto& shape = value["shape"];
    if (!shape.is_array() || shape.size() > kMaxDims) {
      refuse_tensor(name, cat("its shape must be a list of at most ", kMaxDims, " integers"));
    }
    // Zero sizes last: the product of the others must not overflow either.
    const uint64_t limit = uint64_t{1} << 62;
    uint64_t bytes = c10::elementSize(info.dtype);
    bool is_empty = false;
    for (const auto& item : shape) {
      const uint64_t size = read_count(name, item, "its shape");
      if (size > 0 && bytes > limit / size) {
        refuse_tensor(name, cat("its shape ", shape.dump(), " is too large"));
      }
      is_empty = is_empty || size == 0;
      bytes *= std::max<uint64_t>(size, 1);
      info.sizes.push_back(static_cast<int64_t>(size));
    }
    bytes = is_empty ? 0 : bytes;

    const auto& offsets = value["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2) {
      refuse_tensor(name, "data_offsets must be a list of two integers");
    }
    info.begin = read_count(name, offsets[0], "data_offsets");
    info.end = read_count(name, offsets[1], "data_offsets");
    if (info.begin > info.end) {
      refuse_tensor(name, cat("data_offsets ", offsets.dump(), " end before they begin"));
    }
    if (info.end > data_size_) {
      refuse_tensor(name, cat("its data end at byte ", info.end, ", but the file has ", data_size_,
                              " bytes of data"));
    }
    if (info.bytes() != bytes) {
      refuse_tensor(name, cat("dtype ", found->name, " and shape ", shape.dump(), " need ", bytes,
                              " bytes, but data_offsets ", offsets.dump(), " give ", info.bytes()));
    }
    return info;
  }

  // Every byte of the data part belongs to exactly one tensor.
  void check_cover(const std::map<std::string, TensorInfo>& tensors) {
    std::vector<std::pair<const std::string*, const TensorInfo*>> sorted;
    for (const auto& [name, info] : tensors) {
      sorted.emplace_back(&name, &info);
    }
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
      return std::tie(a.second->begin, a.second->end) < std::tie(b.second->begin, b.second->end);
    });
    uint64_t covered = 0;
    for (const auto& [name, info] : sorted) {
      if (info->begin < covered) {
        refuse_tensor(*name, cat("its data begin at byte ", info->begin,
                                 " and overlap those of another tensor, which end at ", covered));
      }
      if (info->begin > covered) {
        refuse_tensor(*name, cat("its data begin at byte ", info->begin, ", which leaves a gap ",
                                 "after byte ", covered));
      }
      covered = info->end;
    }
    if (covered != data_size_) {
      refuse(path_, cat("has ", data_size_, " bytes of data, but its tensors need ", covered),
             kDamaged);
    }
  }

  const std::filesystem::path& path_;
  uint64_t data_size_;
};

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
  if (text.size() > kMaxHeader) {
    refuse(path, cat("the header needs ", text.size(), " bytes; the format allows ", kMaxHeader));
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
    if (size_ < kLengthBytes) {
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
  uint64_t length = 0;
  for (uint64_t i = 0; i < kLengthBytes; ++i) {
    length |= std::to_integer<uint64_t>(*mapping_->at(i)) << (8 * i);
  }
  if (length > kMaxHeader) {
    refuse(path,
           cat("is not a safetensors file: its header would have ", length,
               " bytes; the format allows ", kMaxHeader),
           kDamaged);
  }
  if (length > mapping_->size() - kLengthBytes) {
    refuse(path,
           cat("is cut short: its header has ", length, " bytes, the file ", mapping_->size()),
           kDamaged);
  }
  data_offset_ = kLengthBytes + length;
  const std::string_view header(reinterpret_cast<const char*>(mapping_->at(kLengthBytes)), length);
  HeaderParser(path_, mapping_->size() - data_offset_).parse(header, metadata_, tensors_);
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
  std::array<unsigned char, kLengthBytes> length{};
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
