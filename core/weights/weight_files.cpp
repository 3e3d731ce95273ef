// SPDX-License-Identifier: Apache-2.0
#include "core/weights/weight_files.hpp"

#include <algorithm>
#include <set>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/files.hpp"
#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/weights/strict_json.hpp"

namespace limbeck {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

[[noreturn]] void refuse_weights(const fs::path& path,
                                 const std::string& what,
                                 const std::string& hint = "") {
  throw Error(Fault::kData, cat(path.string(), ": ", what), hint);
}

bool strip_end(std::string& name, std::string_view end) {
  const bool is_there = name.ends_with(end);
  name.resize(name.size() - (is_there ? end.size() : 0));
  return is_there;
}

// "model-00001-of-00002" -> "model"; false: it is no shard's name.
bool strip_shard(std::string& name) {
  std::string pattern = name;
  for (auto& letter : pattern) {
    letter = letter >= '0' && letter <= '9' ? '#' : letter;
  }
  if (!strip_end(pattern, "-#####-of-#####")) {
    return false;
  }
  name.resize(pattern.size());
  return true;
}

// The index or the files that a folder's weights are read from; empty: it has none.
std::vector<fs::path> weights_in(const fs::path& folder) {
  std::vector<std::string> indices, files;
  for (const auto& name : file_names(folder)) {
    if (name.ends_with(kIndexExtension)) {
      indices.push_back(name);
    } else if (name.ends_with(kWeightsExtension)) {
      files.push_back(name);
    }
  }
  for (auto* names : {&indices, &files}) {
    const char* extension = names == &indices ? kIndexExtension : kWeightsExtension;
    for (const std::string stem : {kWeightsStem, "model"}) {
      if (std::binary_search(names->begin(), names->end(), stem + extension)) {
        return {folder / (stem + extension)};
      }
    }
    if (names == &indices && names->size() > 1) {
      refuse_weights(folder, cat("has several indices: ", join(*names)),
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

void open_index(const fs::path& index, WeightFiles& found) {
  found.index = index;
  found.weight_map = parse_weight_map(read_file(index), index);
  std::set<std::string> shards;
  for (const auto& [name, file] : found.weight_map) {
    shards.insert(file);
  }
  std::vector<std::string> absent;
  for (const auto& file : shards) {
    std::error_code ignored;
    if (fs::exists(found.folder / file, ignored)) {
      found.files.push_back(found.folder / file);
    } else {
      absent.push_back(file);
    }
  }
  std::string stem = index.filename().string();
  strip_end(stem, kIndexExtension);
  std::vector<std::string> others, extra;
  for (const auto& name : file_names(found.folder)) {
    auto own = name;
    if (shards.count(name) == 0 && strip_end(own, kWeightsExtension)) {
      others.push_back(name);
      if (strip_shard(own) && own == stem) {
        extra.push_back(name);
      }
    }
  }
  if (!absent.empty()) {
    refuse_weights(
        index,
        cat("names ", shards.size(), " files, of which ", absent.size(),
            " are missing: ", first_ten(absent, ", ")),
        absent.size() == shards.size() && !others.empty()
            ? cat("the index is of older weights; remove it to read ", first_ten(others, ", "))
            : "the download or copy was not complete");
  }
  if (!extra.empty()) {
    refuse_weights(
        index,
        cat("does not name ", extra.size(), " shards that are beside it: ", first_ten(extra, ", ")),
        "files of different exports are mixed, or the index is an old one");
  }
}

// Other weights in the folder that a reader with another order would have taken.
void warn_of_others(const WeightFiles& found) {
  std::set<std::string> used = {found.index.filename().string()};
  for (const auto& file : found.files) {
    used.insert(file.filename().string());
  }
  std::vector<std::string> others;
  for (const auto& name : file_names(found.folder)) {
    if (is_weights_file(name) && used.count(name) == 0) {
      others.push_back(name);
    }
  }
  if (!others.empty()) {
    log::warn("weights",
              cat(found.folder.string(), ": read from ",
                  (found.index.empty() ? found.files.front() : found.index).filename().string(),
                  "; left aside: ", first_ten(others, ", ")));
  }
}

void open_folder(const fs::path& folder, WeightFiles& found) {
  found.folder = folder;
  const auto paths = weights_in(folder);
  if (paths.empty()) {
    refuse_weights(folder, "has no weights: no *.safetensors and no index of them");
  }
  if (paths.front().filename().string().ends_with(kIndexExtension)) {
    open_index(paths.front(), found);
  } else {
    found.files = paths;
  }
  warn_of_others(found);
}

}  // namespace

std::string first_ten(const std::vector<std::string>& items, const char* between) {
  constexpr size_t kShown = 10;
  const auto shown = static_cast<std::ptrdiff_t>(std::min(items.size(), kShown));
  const std::string text = join({items.begin(), items.begin() + shown}, between);
  return items.size() > kShown ? cat(text, between, "... and ", items.size() - kShown, " more")
                               : text;
}

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
    refuse_weights(folder, cat("cannot list this folder: ", error.message()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool is_weights_file(std::string name) {
  if (!strip_end(name, kIndexExtension) && !strip_end(name, kWeightsExtension)) {
    return false;
  }
  strip_shard(name);
  return name == kWeightsStem || name == "model";
}

std::map<std::string, std::string> parse_weight_map(std::string_view text, const fs::path& index) {
  std::map<std::string, std::string> weight_map;
  const json root = parse_strict(text, index, "the index");
  if (!root.is_object() || !root.contains("weight_map") || !root["weight_map"].is_object()) {
    refuse_weights(index, "has no object 'weight_map'");
  }
  for (const auto& [name, file] : root["weight_map"].items()) {
    const auto target = file.is_string() ? file.get<std::string>() : "";
    if (target.empty() || target.find('/') != std::string::npos ||
        !target.ends_with(kWeightsExtension)) {
      refuse_weights(index, cat("tensor '", name, "' is said to be in ", file.dump(),
                                ", expected the name of a .safetensors file beside the index"));
    }
    weight_map.emplace(name, target);
  }
  if (weight_map.empty()) {
    refuse_weights(index, "its weight_map is empty");
  }
  return weight_map;
}

WeightFiles find_weight_files(const fs::path& path, const std::string& part) {
  WeightFiles found;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    const auto inner = path / part;
    const bool has_inner = !part.empty() && fs::is_directory(inner, ignored);
    const bool is_pipeline = fs::exists(path / "model_index.json", ignored);
    if (is_pipeline && !has_inner) {
      refuse_weights(path, cat("is a pipeline folder without a folder '", part, "'"));
    }
    open_folder(has_inner && (is_pipeline || weights_in(path).empty()) ? inner : path, found);
  } else if (!fs::exists(path, ignored)) {
    refuse_weights(path, "does not exist");
  } else {
    found.folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    if (path.extension() == ".json") {
      open_index(path, found);
    } else {
      found.files = {path};
    }
  }
  return found;
}

std::map<std::string, size_t> place_tensors(const WeightFiles& found,
                                            const std::vector<std::vector<std::string>>& names) {
  std::map<std::string, size_t> places;
  const auto file_of = [&](size_t i) { return found.files[i].filename().string(); };
  for (size_t i = 0; i < names.size(); ++i) {
    for (const auto& name : names[i]) {
      const auto [place, is_new] = places.emplace(name, i);
      if (!is_new) {
        refuse_weights(found.files[i],
                       cat("tensor '", name, "' is also in ", file_of(place->second)),
                       "remove the files that do not belong to these weights");
      }
    }
  }
  if (found.index.empty()) {
    return places;
  }
  std::vector<std::string> lost, unlisted;
  for (const auto& [name, file] : found.weight_map) {
    const auto place = places.find(name);
    if (place == places.end() || file_of(place->second) != file) {
      lost.push_back(cat(name, " (", file, ")"));
    }
  }
  for (const auto& [name, place] : places) {
    if (found.weight_map.count(name) == 0) {
      unlisted.push_back(cat(name, " (", file_of(place), ")"));
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
    refuse_weights(found.index, text,
                   "files of different exports are mixed, or the index is an old one");
  }
  return places;
}

}  // namespace limbeck
