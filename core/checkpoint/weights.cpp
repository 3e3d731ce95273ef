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
#include "core/checkpoint/strict_json.hpp"

namespace limbeck {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const char kExtension[] = ".safetensors";
const char kIndexExtension[] = ".safetensors.index.json";
const char kStem[] = "diffusion_pytorch_model";

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

[[noreturn]] void refuse_folder(const fs::path& path,
                                const std::string& what,
                                const std::string& hint = "") {
  throw Error(Fault::kData, cat(path.string(), ": ", what), hint);
}

// "a, b, ... and 5 more"
std::string first_ten(const std::vector<std::string>& items, const char* between) {
  constexpr size_t kShown = 10;
  const auto shown = static_cast<std::ptrdiff_t>(std::min(items.size(), kShown));
  const std::string text = join({items.begin(), items.begin() + shown}, between);
  return items.size() > kShown ? cat(text, between, "... and ", items.size() - kShown, " more")
                               : text;
}

std::string shape_text(at::IntArrayRef sizes) {
  std::vector<std::string> items;
  for (const int64_t size : sizes) {
    items.push_back(std::to_string(size));
  }
  return "[" + join(items) + "]";
}

// Names of the regular files in a folder, sorted.
std::vector<std::string> file_names(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) {
      names.push_back(it->path().filename().string());
    }
  }
  if (error) {
    refuse_folder(folder, cat("cannot list this folder: ", error.message()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The index or the files that a folder's weights are read from; empty: it has none.
std::vector<fs::path> weights_in(const fs::path& folder) {
  std::vector<std::string> indices, files;
  for (const auto& name : file_names(folder)) {
    if (ends_with(name, kIndexExtension)) {
      indices.push_back(name);
    } else if (ends_with(name, kExtension)) {
      files.push_back(name);
    }
  }
  for (auto* names : {&indices, &files}) {
    const char* extension = names == &indices ? kIndexExtension : kExtension;
    for (const std::string stem : {kStem, "model"}) {
      if (std::binary_search(names->begin(), names->end(), stem + extension)) {
        return {folder / (stem + extension)};
      }
    }
    if (names == &indices && names->size() > 1) {
      refuse_folder(folder, cat("has several indices: ", join(*names)),
                    "name one of them instead of the folder");
    }
    if (!names->empty()) {
      std::vector<fs::path> paths;
      for (const auto& name : *names) {
        paths.push_back(folder / name);
      }
      return paths;
    }
  }
  return {};
}

// "weight_map" of an index, checked: tensor -> file in the same folder.
std::map<std::string, std::string> read_weight_map(const fs::path& index) {
  std::map<std::string, std::string> weight_map;
  const json root = parse_strict(read_file(index), index, "the index");
  if (!root.is_object() || !root.contains("weight_map") || !root["weight_map"].is_object()) {
    refuse_folder(index, "has no object 'weight_map'");
  }
  for (const auto& [name, file] : root["weight_map"].items()) {
    const auto text = file.is_string() ? file.get<std::string>() : "";
    if (text.empty() || text.find('/') != std::string::npos || !ends_with(text, kExtension)) {
      refuse_folder(index, cat("tensor '", name, "' is said to be in ", file.dump(),
                               ", expected the name of a .safetensors file beside the index"));
    }
    weight_map.emplace(name, text);
  }
  if (weight_map.empty()) {
    refuse_folder(index, "its weight_map is empty");
  }
  return weight_map;
}

// Files that are weights in this layout, or their index, under any of its names.
bool is_weights_file(std::string name) {
  const auto strip_end = [&](const std::string& end) {
    const bool is_there = ends_with(name, end);
    name.resize(name.size() - (is_there ? end.size() : 0));
    return is_there;
  };
  if (!strip_end(kIndexExtension) && !strip_end(kExtension)) {
    return false;
  }
  for (auto& letter : name) {  // "model-00001-of-00002" -> "model-#####-of-#####"
    letter = letter >= '0' && letter <= '9' ? '#' : letter;
  }
  strip_end("-#####-of-#####");
  return name == kStem || name == "model";
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
    return cat(kStem, kExtension);
  }
  return cat(kStem, "-", std::setfill('0'), std::setw(5), index + 1, "-of-", std::setw(5), count,
             kExtension);
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
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    const auto inner = path / part;
    const bool has_inner = !part.empty() && fs::is_directory(inner, ignored);
    const bool is_pipeline = fs::exists(path / "model_index.json", ignored);
    if (is_pipeline && !has_inner) {
      refuse_folder(path, cat("is a pipeline folder without a folder '", part, "'"));
    }
    open_folder(has_inner && (is_pipeline || weights_in(path).empty()) ? inner : path);
  } else if (!fs::exists(path, ignored)) {
    refuse_folder(path, "does not exist");
  } else {
    folder_ = path.has_parent_path() ? path.parent_path() : fs::path(".");
    if (ends_with(path.filename().string(), ".json")) {
      open_index(path);
    } else {
      open_file(path);
    }
  }
}

void WeightSource::open_folder(const fs::path& folder) {
  folder_ = folder;
  const auto found = weights_in(folder);
  if (found.empty()) {
    refuse_folder(folder, "has no weights: no *.safetensors and no index of them");
  }
  for (const auto& path : found) {
    if (ends_with(path.filename().string(), kIndexExtension)) {
      open_index(path);
    } else {
      open_file(path);
    }
  }
}

void WeightSource::open_index(const fs::path& index) {
  const auto weight_map = read_weight_map(index);
  std::set<std::string> shards;
  for (const auto& [name, file] : weight_map) {
    shards.insert(file);
  }
  std::vector<std::string> absent;
  for (const auto& file : shards) {
    std::error_code ignored;
    if (!fs::exists(folder_ / file, ignored)) {
      absent.push_back(file);
    }
  }
  if (!absent.empty()) {
    refuse_folder(index,
                  cat("names ", shards.size(), " files, of which ", absent.size(),
                      " are missing: ", first_ten(absent, ", ")),
                  "the download or copy was not complete");
  }
  for (const auto& file : shards) {
    open_file(folder_ / file);
  }
  std::vector<std::string> lost, unlisted;
  for (const auto& [name, file] : weight_map) {
    const auto place = places_.find(name);
    if (place == places_.end() || files_[place->second].path().filename() != file) {
      lost.push_back(cat(name, " (", file, ")"));
    }
  }
  for (const auto& [name, place] : places_) {
    if (weight_map.count(name) == 0) {
      unlisted.push_back(cat(name, " (", files_[place].path().filename().string(), ")"));
    }
  }
  if (!lost.empty() || !unlisted.empty()) {
    std::string text = "does not agree with its files";
    if (!lost.empty()) {
      text += cat("; ", lost.size(), " tensors are not where it says: ", first_ten(lost, ", "));
    }
    if (!unlisted.empty()) {
      text += cat("; ", unlisted.size(), " tensors are not listed: ", first_ten(unlisted, ", "));
    }
    refuse_folder(index, text, "files of different exports are mixed, or the index is an old one");
  }
}

void WeightSource::open_file(const fs::path& file) {
  files_.emplace_back(file);
  for (const auto& [name, info] : files_.back().tensors()) {
    const auto [place, is_new] = places_.emplace(name, files_.size() - 1);
    if (!is_new) {
      refuse_folder(
          file,
          cat("tensor '", name, "' is also in ", files_[place->second].path().filename().string()),
          "remove the files that do not belong to these weights");
    }
  }
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

void WeightReport::throw_unless_clean(const std::string& where) const {
  if (is_clean()) {
    return;
  }
  std::string text =
      cat(where, ": the weights do not fit: ", missing_.size(), " missing, ", unexpected_.size(),
          " unexpected, ", misshapen_.size(), " of another shape");
  const auto list = [&](const char* title, const std::vector<std::string>& items) {
    if (!items.empty()) {
      text += cat("\n  ", title, ":\n    ", first_ten(items, "\n    "));
    }
  };
  list("missing", missing_);
  list("unexpected", unexpected_);
  list("of another shape", misshapen_);
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
    written.push_back(cat(kStem, kIndexExtension));
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
