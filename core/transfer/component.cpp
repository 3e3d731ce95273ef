// SPDX-License-Identifier: Apache-2.0
#include "core/transfer/component.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iomanip>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/transfer/numbers.hpp"
#include "core/weights/weight_files.hpp"

namespace limbeck {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_component(const fs::path& path,
                                   const std::string& what,
                                   const std::string& hint = "") {
  throw Error(Fault::kData, cat(path.string(), ": ", what), hint);
}

// A new file, hashed while it is written.
class HashedFile {
 public:
  explicit HashedFile(const fs::path& path)
      : path_(path),
        descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)),
        hash_(XXH3_createState(), &XXH3_freeState) {
    if (descriptor_ < 0) {
      fail("create");
    }
    XXH3_64bits_reset(hash_.get());
  }
  ~HashedFile() {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
  }
  HashedFile(const HashedFile&) = delete;
  HashedFile& operator=(const HashedFile&) = delete;

  void write(const void* data, uint64_t bytes) {
    XXH3_64bits_update(hash_.get(), data, bytes);
    bytes_ += bytes;
    const auto* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const auto count = ::write(descriptor_, at, bytes);
      if (count < 0 && errno == EINTR) {
        continue;
      }
      if (count < 0) {
        fail("write");
      }
      at += count;
      bytes -= static_cast<uint64_t>(count);
    }
  }

  WrittenFile close() {
    if (::fsync(descriptor_) != 0) {
      fail("flush");
    }
    // Some file systems report a failed write only here.
    if (::close(std::exchange(descriptor_, -1)) != 0) {
      fail("close");
    }
    return {path_, bytes_, XXH3_64bits_digest(hash_.get())};
  }

 private:
  [[noreturn]] void fail(const char* operation) const {
    const int code = errno;
    refuse_component(path_, cat("cannot ", operation, ": ", std::generic_category().message(code)));
  }

  fs::path path_;
  int descriptor_;
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash_;
  uint64_t bytes_ = 0;
};

TensorShape shape_of(const TensorFiles& source, const TensorCopy& copy) {
  auto shape = source.shape(copy.source);
  shape.type = copy.type;
  return shape;
}

void check_copies(const fs::path& folder,
                  const TensorFiles& source,
                  const std::vector<TensorCopy>& tensors) {
  if (tensors.empty()) {
    refuse_component(folder, "there are no weights to write");
  }
  std::set<std::string> names;
  for (const auto& copy : tensors) {
    if (!names.insert(copy.name).second) {
      refuse_component(folder, cat("two tensors would be called '", copy.name, "'"));
    }
    const auto* type = source.shape(copy.source).type;
    if (type != copy.type && !(is_floating(*type) && is_floating(*copy.type))) {
      refuse_component(source.path(), cat("tensor '", copy.source, "' is ", type->name,
                                          ", which does not become ", copy.type->name));
    }
  }
}

std::vector<std::vector<const TensorCopy*>> split_copies(const TensorFiles& source,
                                                         const std::vector<TensorCopy>& tensors,
                                                         uint64_t limit) {
  std::vector<std::vector<const TensorCopy*>> shards(1);
  uint64_t used = 0;
  for (const auto& copy : tensors) {
    const uint64_t bytes = shape_of(source, copy).bytes();
    if (!shards.back().empty() && used + bytes > limit) {
      shards.emplace_back();
      used = 0;
    }
    shards.back().push_back(&copy);
    used += bytes;
  }
  return shards;
}

std::string shard_name(size_t index, size_t count) {
  if (count == 1) {
    return cat(kWeightsStem, kWeightsExtension);
  }
  return cat(kWeightsStem, "-", std::setfill('0'), std::setw(5), index + 1, "-of-", std::setw(5),
             count, kWeightsExtension);
}

// Calls `visit` with the tensor's bytes as its new type, block by block.
template <class Visit>
void read_converted(const TensorFiles& source, const TensorCopy& copy, const Visit& visit) {
  const auto& from = *source.shape(copy.source).type;
  if (&from == copy.type) {
    read_blocks(source, copy.source, [&](const std::byte* data, uint64_t first, uint64_t bytes) {
      visit(data, first, bytes);
    });
    return;
  }
  const uint64_t old_width = from.bits / 8, new_width = copy.type->bits / 8;
  std::vector<std::byte> converted;
  uint64_t lost = 0;
  read_blocks(source, copy.source, [&](const std::byte* data, uint64_t first, uint64_t bytes) {
    const uint64_t count = bytes / old_width;
    converted.resize(count * new_width);
    lost += convert_numbers(from, *copy.type, data, count, converted.data());
    visit(converted.data(), first / old_width * new_width, converted.size());
  });
  if (lost > 0) {
    refuse_component(source.path(),
                     cat("tensor '", copy.source, "' has ", lost, " numbers that ", copy.type->name,
                         " cannot hold: they would become infinite"),
                     "export as fp32 or bf16");
  }
}

WrittenFile write_shard(const fs::path& path,
                        const TensorFiles& source,
                        const std::vector<const TensorCopy*>& tensors) {
  SafetensorsHeader header;
  header.metadata = {{"format", "pt"}};
  for (const auto* copy : tensors) {
    auto shape = shape_of(source, *copy);
    header.tensors[copy->name] = {shape.type, std::move(shape.sizes), 0, 0};
  }
  const auto head = lay_out_safetensors(header, path);
  auto ordered = tensors;
  std::stable_sort(ordered.begin(), ordered.end(), [&](const auto* a, const auto* b) {
    const auto &left = header.tensors.at(a->name), &right = header.tensors.at(b->name);
    return std::tie(left.begin, left.end) < std::tie(right.begin, right.end);
  });
  HashedFile file(path);
  file.write(head.data(), head.size());
  for (const auto* copy : ordered) {
    read_converted(source, *copy, [&](const std::byte* data, uint64_t, uint64_t bytes) {
      file.write(data, bytes);
    });
  }
  return file.close();
}

}  // namespace

std::vector<WrittenFile> write_component(const fs::path& folder,
                                         const TensorFiles& source,
                                         const std::vector<TensorCopy>& tensors,
                                         uint64_t shard_limit) {
  check_copies(folder, source, tensors);
  const auto shards = split_copies(source, tensors, shard_limit);
  std::vector<WrittenFile> written;
  nlohmann::json index;
  uint64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const auto name = shard_name(i, shards.size());
    written.push_back(write_shard(folder / name, source, shards[i]));
    for (const auto* copy : shards[i]) {
      index["weight_map"][copy->name] = name;
      total += shape_of(source, *copy).bytes();
    }
  }
  if (shards.size() > 1) {
    index["metadata"]["total_size"] = total;
    const auto text = index.dump(2) + "\n";
    HashedFile file(folder / cat(kWeightsStem, kIndexExtension));
    file.write(text.data(), text.size());
    written.push_back(file.close());
  }
  return written;
}

void verify_component(const fs::path& folder,
                      const TensorFiles& source,
                      const std::vector<TensorCopy>& tensors) {
  const auto written = open_weights(folder);
  if (written->tensors().size() != tensors.size()) {
    refuse_component(folder, cat("has ", written->tensors().size(), " tensors, but ",
                                 tensors.size(), " were written"));
  }
  for (const auto& copy : tensors) {
    const auto &got = written->shape(copy.name), expected = shape_of(source, copy);
    if (got.type != expected.type || got.sizes != expected.sizes) {
      refuse_component(folder, cat("tensor '", copy.name, "' reads as ", got.type->name, " ",
                                   shape_text(got.sizes), ", but ", expected.type->name, " ",
                                   shape_text(expected.sizes), " was written"));
    }
    std::vector<std::byte> again;
    read_converted(source, copy, [&](const std::byte* data, uint64_t first, uint64_t bytes) {
      again.resize(bytes);
      written->read(copy.name, first, bytes, again.data());
      if (std::memcmp(again.data(), data, bytes) != 0) {
        refuse_component(
            folder, cat("tensor '", copy.name, "' reads back with other bits than were written"),
            "the disk or memory is faulty; do not trust this copy");
      }
    });
  }
}

void compare_names(const TensorFiles& base,
                   const TensorFiles& source,
                   const std::vector<TensorCopy>& copies) {
  std::vector<std::string> missing, unexpected, misshapen;
  std::map<std::string, const TensorCopy*> names;
  for (const auto& copy : copies) {
    names.emplace(copy.name, &copy);
    const auto known = base.tensors().find(copy.name);
    if (known == base.tensors().end()) {
      unexpected.push_back(copy.name);
    } else if (const auto& sizes = source.shape(copy.source).sizes; sizes != known->second.sizes) {
      misshapen.push_back(cat(copy.name, ": ", shape_text(sizes), ", the base has ",
                              shape_text(known->second.sizes)));
    }
  }
  for (const auto& [name, shape] : base.tensors()) {
    if (names.count(name) == 0) {
      missing.push_back(name);
    }
  }
  if (missing.empty() && unexpected.empty() && misshapen.empty()) {
    return;
  }
  std::string text = cat(
      base.path().string(), ": the weights to write are not those of this base: ", missing.size(),
      " missing, ", unexpected.size(), " unexpected, ", misshapen.size(), " of another shape");
  const auto list = [&](const char* title, const std::vector<std::string>& items) {
    if (!items.empty()) {
      text += cat("\n  ", title, ":\n    ", first_ten(items, "\n    "));
    }
  };
  list("missing", missing);
  list("unexpected", unexpected);
  list("of another shape", misshapen);
  throw Error(Fault::kData, text, "name the base that the role was trained from");
}

}  // namespace limbeck
