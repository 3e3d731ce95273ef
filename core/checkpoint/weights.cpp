// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/weights.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iomanip>
#include <set>
#include <system_error>

#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/files.hpp"
#include "core/base/text.hpp"
#include "core/weights/weight_files.hpp"

namespace limbeck {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

[[noreturn]] void refuse_folder(const fs::path& path,
                                const std::string& what,
                                const std::string& hint = "") {
  throw Error(Fault::kData, cat(path.string(), ": ", what), hint);
}

std::string shape_text(at::IntArrayRef sizes) {
  std::vector<std::string> items;
  for (const int64_t size : sizes) {
    items.push_back(std::to_string(size));
  }
  return "[" + join(items) + "]";
}

struct Shard {
  NamedTensors tensors;
  uint64_t bytes = 0;
};

std::vector<Shard> split(const NamedTensors& tensors, uint64_t limit) {
  std::vector<Shard> shards(1);
  for (const auto& entry : tensors) {
    const uint64_t bytes = entry.second.nbytes();
    if (!shards.back().tensors.empty() && shards.back().bytes + bytes > limit) {
      shards.emplace_back();
    }
    shards.back().tensors.push_back(entry);
    shards.back().bytes += bytes;
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

// A folder that is gone at the end.
class WorkFolder {
 public:
  explicit WorkFolder(const fs::path& parent) {
    std::error_code error;
    fs::create_directories(parent, error);
    path_ = parent / cat(".writing-", ::getpid());
    if (!error) {
      fs::remove_all(path_, error);
    }
    if (!error) {
      fs::create_directory(path_, error);
    }
    if (error) {
      refuse_folder(parent, cat("cannot create a folder here: ", error.message()));
    }
  }
  ~WorkFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace

WeightSource::WeightSource(const fs::path& path, const std::string& part) {
  const auto found = find_weight_files(path, part);
  folder_ = found.folder;
  std::vector<std::vector<std::string>> names;
  for (const auto& file : found.files) {
    files_.emplace_back(file);
    names.emplace_back();
    for (const auto& [name, info] : files_.back().tensors()) {
      names.back().push_back(name);
    }
  }
  places_ = place_tensors(found, names);
}

std::vector<fs::path> WeightSource::files() const {
  std::vector<fs::path> paths;
  for (const auto& file : files_) {
    paths.push_back(file.path());
  }
  return paths;
}

std::vector<std::string> WeightSource::names() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : places_) {
    names.push_back(name);
  }
  return names;
}

const SafetensorsFile& WeightSource::file_of(const std::string& name) const {
  const auto place = places_.find(name);
  if (place == places_.end()) {
    const auto close = nearest(name, names());
    refuse_folder(folder_, cat("the weights have no tensor '", name, "'"),
                  close.empty() ? "" : cat("the nearest name is '", close, "'"));
  }
  return files_[place->second];
}

const TensorInfo& WeightSource::info(const std::string& name) const {
  return file_of(name).info(name);
}

at::Tensor WeightSource::tensor(const std::string& name) const {
  return file_of(name).tensor(name);
}

void WeightReport::add_misshapen(const std::string& name,
                                 at::IntArrayRef got,
                                 at::IntArrayRef expected) {
  misshapen_.push_back(cat(name, ": shape ", shape_text(got), ", expected ", shape_text(expected)));
}

bool converts(at::ScalarType from, at::ScalarType to) {
  return from == to ||
         (from != at::ScalarType::Undefined && at::isFloatingType(from) && at::isFloatingType(to));
}

void WeightReport::add_mistyped(const std::string& name,
                                const std::string& got,
                                at::ScalarType expected) {
  mistyped_.push_back(cat(name, ": type ", got, ", expected ", c10::toString(expected)));
}

void WeightReport::throw_unless_clean(const std::string& where) const {
  if (is_clean()) {
    return;
  }
  std::string text =
      cat(where, ": the weights do not fit: ", missing_.size(), " missing, ", unexpected_.size(),
          " unexpected, ", misshapen_.size(), " of another shape",
          mistyped_.empty() ? "" : cat(", ", mistyped_.size(), " of another type"));
  const auto list = [&](const char* title, const std::vector<std::string>& items) {
    if (!items.empty()) {
      text += cat("\n  ", title, ":\n    ", first_ten(items, "\n    "));
    }
  };
  list("missing", missing_);
  list("unexpected", unexpected_);
  list("of another shape", misshapen_);
  list("of a type that does not become the one that is needed", mistyped_);
  throw Error(Fault::kData, text, "the weights must be those of this network and configuration");
}

void write_weights(const fs::path& folder,
                   const std::string& config,
                   const NamedTensors& tensors,
                   uint64_t shard_limit) {
  if (tensors.empty()) {
    refuse_folder(folder, "there are no weights to write");
  }
  std::set<std::string> unique;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined() || tensor.layout() != at::kStrided) {
      refuse_folder(folder, cat("tensor '", name, "' cannot be written: it is ",
                                tensor.defined() ? "not dense" : "undefined"));
    }
    if (!unique.insert(name).second) {
      refuse_folder(folder, cat("two tensors are called '", name, "'"));
    }
  }

  const WorkFolder work(folder);
  std::vector<std::string> written;  // in the order in which they are put into place
  const auto shards = split(tensors, shard_limit);
  json index;
  uint64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const auto name = shard_name(i, shards.size());
    write_safetensors(work.path() / name, shards[i].tensors);
    written.push_back(name);
    total += shards[i].bytes;
    for (const auto& entry : shards[i].tensors) {
      index["weight_map"][entry.first] = name;
    }
  }
  if (shards.size() > 1) {
    index["metadata"]["total_size"] = total;
    written.push_back(cat(kWeightsStem, kIndexExtension));
    write_file(work.path() / written.back(), index.dump(2) + "\n");
  }
  written.push_back("config.json");
  write_file(work.path() / written.back(), config);

  for (const auto& name : written) {
    std::error_code error;
    fs::rename(work.path() / name, folder / name, error);
    if (error) {
      refuse_folder(folder / name, cat("cannot replace this file: ", error.message()));
    }
  }
  for (const auto& name : file_names(folder)) {
    if (is_weights_file(name) && std::find(written.begin(), written.end(), name) == written.end()) {
      std::error_code error;
      fs::remove(folder / name, error);
      if (error) {
        refuse_folder(folder / name, cat("cannot remove this old file: ", error.message()));
      }
    }
  }
}

void verify_weights(const fs::path& folder, const NamedTensors& tensors) {
  const WeightSource source(folder, "");
  if (source.names().size() != tensors.size()) {
    refuse_folder(folder, cat("has ", source.names().size(), " tensors, but ", tensors.size(),
                              " were written"));
  }
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : tensors) {
    if (!source.has(name)) {
      refuse_folder(folder, cat("tensor '", name, "' was not written"));
    }
    const auto read = source.tensor(name);
    if (read.scalar_type() != tensor.scalar_type() || read.sizes() != tensor.sizes()) {
      refuse_folder(
          folder, cat("tensor '", name, "' reads as ", c10::toString(read.scalar_type()), " ",
                      shape_text(read.sizes()), ", but ", c10::toString(tensor.scalar_type()), " ",
                      shape_text(tensor.sizes()), " was written"));
    }
    const auto expected = tensor.detach().to(at::kCPU).contiguous();
    if (expected.nbytes() > 0 &&
        std::memcmp(read.const_data_ptr(), expected.const_data_ptr(), expected.nbytes()) != 0) {
      refuse_folder(folder, cat("tensor '", name, "' reads back with other bits than were written"),
                    "the disk or memory is faulty; do not trust this copy");
    }
  }
}

}  // namespace limbeck
