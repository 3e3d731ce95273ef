// SPDX-License-Identifier: Apache-2.0
#include "core/weights/safetensors_header.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <tuple>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/weights/strict_json.hpp"

namespace limbeck {
namespace {

using nlohmann::json;

constexpr size_t kMaxDims = 64;  // of libtorch's iterators
const char kMetadata[] = "__metadata__";

constexpr std::array kTypes = {
    WeightType{"BOOL", 8},    WeightType{"F4", 4},      WeightType{"F6_E2M3", 6},
    WeightType{"F6_E3M2", 6}, WeightType{"U8", 8},      WeightType{"I8", 8},
    WeightType{"F8_E5M2", 8}, WeightType{"F8_E4M3", 8}, WeightType{"F8_E8M0", 8},
    WeightType{"I16", 16},    WeightType{"U16", 16},    WeightType{"F16", 16},
    WeightType{"BF16", 16},   WeightType{"I32", 32},    WeightType{"U32", 32},
    WeightType{"F32", 32},    WeightType{"C64", 64},    WeightType{"F64", 64},
    WeightType{"I64", 64},    WeightType{"U64", 64},
};

std::string type_names() {
  std::vector<std::string> names;
  for (const auto& type : kTypes) {
    names.emplace_back(type.name);
  }
  return join(names);
}

[[noreturn]] void refuse_file(const std::filesystem::path& path,
                              const std::string& what,
                              const std::string& hint = "") {
  throw Error(Fault::kData, cat(path.string(), ": ", what), hint);
}

const char* const kDamaged = "the file is damaged or was not written completely; get it again";

class HeaderParser {
 public:
  HeaderParser(const std::filesystem::path& path, uint64_t data_size)
      : path_(path), data_size_(data_size) {}

  void parse(std::string_view text,
             std::map<std::string, std::string>& metadata,
             std::map<std::string, TensorEntry>& tensors) {
    if (text.empty() || text.front() != '{') {
      refuse_file(path_, "is not a safetensors file: its header does not begin with '{'", kDamaged);
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
      refuse_file(path_, cat("__metadata__ is ", value.type_name(), ", expected an object"));
    }
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) {
        refuse_file(path_,
                    cat("__metadata__ '", key, "' is ", text.type_name(), ", expected a string"));
      }
      metadata.emplace(key, text.get<std::string>());
    }
  }

  [[noreturn]] void refuse_tensor(const std::string& name, const std::string& what) {
    refuse_file(path_, cat("tensor '", name, "': ", what), kDamaged);
  }

  uint64_t read_count(const std::string& name, const json& value, const char* what) {
    if (!value.is_number_unsigned()) {
      refuse_tensor(name,
                    cat(what, " holds ", value.dump(), ", expected an integer of at least 0"));
    }
    return value.get<uint64_t>();
  }

  TensorEntry read_tensor(const std::string& name, const json& value) {
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
    TensorEntry info;
    const auto& dtype = value["dtype"];
    info.type = dtype.is_string() ? find_weight_type(dtype.get_ref<const std::string&>()) : nullptr;
    if (info.type == nullptr) {
      refuse_file(path_, cat("tensor '", name, "': dtype ", dtype.dump(), " is unknown"),
                  "the format has " + type_names());
    }

    const auto& shape = value["shape"];
    if (!shape.is_array() || shape.size() > kMaxDims) {
      refuse_tensor(name, cat("its shape must be a list of at most ", kMaxDims, " integers"));
    }
    // Zero sizes last: the product of the others must not overflow either.
    const uint64_t limit = uint64_t{1} << 62;
    uint64_t bits = info.type->bits;
    bool is_empty = false;
    for (const auto& item : shape) {
      const uint64_t size = read_count(name, item, "its shape");
      if (size > 0 && bits > limit / size) {
        refuse_tensor(name, cat("its shape ", shape.dump(), " is too large"));
      }
      is_empty = is_empty || size == 0;
      bits *= std::max<uint64_t>(size, 1);
      info.sizes.push_back(static_cast<int64_t>(size));
    }
    if (bits % 8 != 0) {
      refuse_tensor(name,
                    cat("shape ", shape.dump(), " of ", info.type->name, " ends inside a byte"));
    }
    const uint64_t bytes = is_empty ? 0 : bits / 8;

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
      refuse_tensor(name,
                    cat("dtype ", info.type->name, " and shape ", shape.dump(), " need ", bytes,
                        " bytes, but data_offsets ", offsets.dump(), " give ", info.bytes()));
    }
    return info;
  }

  // Every byte of the data part belongs to exactly one tensor.
  void check_cover(const std::map<std::string, TensorEntry>& tensors) {
    std::vector<std::pair<const std::string*, const TensorEntry*>> sorted;
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
      refuse_file(path_, cat("has ", data_size_, " bytes of data, but its tensors need ", covered),
                  kDamaged);
    }
  }

  const std::filesystem::path& path_;
  uint64_t data_size_;
};

}  // namespace

const WeightType* find_weight_type(std::string_view name) {
  const auto found = std::find_if(kTypes.begin(), kTypes.end(),
                                  [&](const WeightType& type) { return type.name == name; });
  return found == kTypes.end() ? nullptr : &*found;
}

SafetensorsHeader parse_safetensors_header(std::string_view head,
                                           uint64_t file_bytes,
                                           const std::filesystem::path& path) {
  if (file_bytes < kSafetensorsLengthBytes || head.size() < kSafetensorsLengthBytes) {
    refuse_file(path, cat("is not a safetensors file: it has only ", file_bytes, " bytes"),
                kDamaged);
  }
  uint64_t length = 0;
  for (size_t i = 0; i < kSafetensorsLengthBytes; ++i) {
    length |= uint64_t{static_cast<unsigned char>(head[i])} << (8 * i);
  }
  if (length > kSafetensorsMaxHeader) {
    refuse_file(path,
                cat("is not a safetensors file: its header would have ", length,
                    " bytes; the format allows ", kSafetensorsMaxHeader),
                kDamaged);
  }
  head.remove_prefix(kSafetensorsLengthBytes);
  if (length > file_bytes - kSafetensorsLengthBytes || length > head.size()) {
    refuse_file(path, cat("is cut short: its header has ", length, " bytes, the file ", file_bytes),
                kDamaged);
  }
  SafetensorsHeader header;
  header.data_offset = kSafetensorsLengthBytes + length;
  HeaderParser(path, file_bytes - header.data_offset)
      .parse(head.substr(0, length), header.metadata, header.tensors);
  return header;
}

SafetensorsHeader read_safetensors_header(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    const int code = errno;
    refuse_file(path, cat("cannot open this file: ", std::generic_category().message(code)));
  }
  struct stat about = {};
  const bool is_regular = ::fstat(descriptor, &about) == 0 && S_ISREG(about.st_mode);
  const auto size = is_regular ? static_cast<uint64_t>(about.st_size) : 0;
  std::string head;
  const auto fill = [&](uint64_t bytes) {
    const auto begin = head.size();
    head.resize(std::min(size, bytes));
    size_t done = begin;
    while (done < head.size()) {
      const auto count =
          ::pread(descriptor, head.data() + done, head.size() - done, static_cast<off_t>(done));
      if (count == 0 || (count < 0 && errno != EINTR)) {
        break;
      }
      done += static_cast<size_t>(std::max<ssize_t>(count, 0));
    }
    head.resize(done);
  };
  fill(kSafetensorsLengthBytes);
  uint64_t length = 0;
  for (size_t i = 0; i < head.size(); ++i) {
    length |= uint64_t{static_cast<unsigned char>(head[i])} << (8 * i);
  }
  fill(kSafetensorsLengthBytes + std::min(length, kSafetensorsMaxHeader));
  ::close(descriptor);
  if (!is_regular) {
    refuse_file(path, "is not a regular file");
  }
  return parse_safetensors_header(head, size, path);
}

std::string lay_out_safetensors(SafetensorsHeader& header, const std::filesystem::path& path) {
  if (header.tensors.count(kMetadata) != 0) {
    refuse_file(path, cat("a tensor cannot be written as '", kMetadata, "': the name is reserved"));
  }
  std::vector<std::pair<const std::string*, TensorEntry*>> sorted;
  for (auto& [name, entry] : header.tensors) {
    sorted.emplace_back(&name, &entry);
  }
  // kTypes has the order of the format's own list.
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second->type > b.second->type; });
  auto object = nlohmann::ordered_json::object();
  if (!header.metadata.empty()) {
    object[kMetadata] = header.metadata;
  }
  // ordered_json looks every name up in a list; appending keeps large headers linear.
  auto& entries = static_cast<nlohmann::ordered_json::object_t::Container&>(
      object.get_ref<nlohmann::ordered_json::object_t&>());
  uint64_t offset = 0;
  for (const auto& [name, entry] : sorted) {
    uint64_t bits = entry->type->bits;
    for (const int64_t size : entry->sizes) {
      bits *= static_cast<uint64_t>(size);
    }
    entry->begin = offset;
    entry->end = offset += bits / 8;
    nlohmann::ordered_json told;
    told["dtype"] = entry->type->name;
    told["shape"] = entry->sizes;
    told["data_offsets"] = {entry->begin, entry->end};
    entries.emplace_back(*name, std::move(told));
  }
  std::string text;
  try {
    text = object.dump();
  } catch (const json::exception& error) {
    refuse_file(path, cat("a name or metadata entry is not valid UTF-8: ", error.what()));
  }
  constexpr size_t kAlignment = 8;
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  if (text.size() > kSafetensorsMaxHeader) {
    refuse_file(path, cat("the header needs ", text.size(), " bytes; the format allows ",
                          kSafetensorsMaxHeader));
  }
  header.data_offset = kSafetensorsLengthBytes + text.size();
  std::string head(kSafetensorsLengthBytes, '\0');
  for (size_t i = 0; i < head.size(); ++i) {
    head[i] = static_cast<char>(text.size() >> (8 * i));
  }
  return head + text;
}

}  // namespace limbeck
