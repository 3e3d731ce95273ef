// SPDX-License-Identifier: Apache-2.0
#include "sources.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <limbeck/error.hpp>

namespace parquet_data {
namespace {

namespace fs = std::filesystem;

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

[[noreturn]] void refuse(const std::string& entry, const std::string& what) {
  throw lb::Error(LB_INVALID_ARGUMENT, "data_path: " + what + " in '" + entry + "'");
}

Source parse_source(std::string_view text, const std::string& entry, Mix mix) {
  Source source{std::string(trimmed(text)), 1};
  const auto colon = source.path.rfind(':');
  if (colon != std::string::npos && !exists(source.path)) {
    const auto digits = source.path.substr(colon + 1);
    double factor = 0;
    const auto [end, fault] = std::from_chars(digits.data(), digits.data() + digits.size(), factor);
    if (fault == std::errc() && end == digits.data() + digits.size()) {
      constexpr double kMostRepeats = 1e6;
      if (!std::isfinite(factor) || factor < 0) {
        refuse(entry, "the factor " + digits + " is not a number of at least 0");
      }
      if (mix == Mix::kRepeat && (factor != std::floor(factor) || factor > kMostRepeats)) {
        refuse(entry, "the repeat count " + digits +
                          " is no integer up to 1000000; shares need mix = \"weight\",");
      }
      source.factor = factor;
      source.path.resize(colon);
    }
  }
  if (source.path.empty()) {
    refuse(entry, "an empty path");
  }
  return source;
}

std::vector<DataFile> files_below(const std::string& folder) {
  std::vector<DataFile> files;
  std::error_code fault;
  fs::recursive_directory_iterator entries(folder, fs::directory_options::follow_directory_symlink,
                                           fault);
  for (; !fault && entries != fs::recursive_directory_iterator(); entries.increment(fault)) {
    if (entries->path().extension() == ".parquet" && entries->is_regular_file(fault)) {
      files.push_back({fs::canonical(entries->path()).string(),
                       entries->path().lexically_relative(folder).string()});
    }
  }
  if (fault) {
    throw lb::Error(LB_UNAVAILABLE, "cannot list '" + folder + "': " + fault.message());
  }
  if (files.empty()) {
    throw lb::Error(LB_NOT_FOUND, "data_path: no *.parquet file below '" + folder + "'");
  }
  return files;
}

std::vector<DataFile> files_of(const Source& source) {
  std::error_code ignored;
  if (fs::is_directory(source.path, ignored)) {
    return files_below(source.path);
  }
  if (!exists(source.path)) {
    throw lb::Error(LB_NOT_FOUND, "data_path: '" + source.path + "' does not exist (from '" +
                                      fs::current_path(ignored).string() + "')");
  }
  return {{fs::canonical(source.path).string(), fs::path(source.path).filename().string()}};
}

bool is_before(const DataFile& a, const DataFile& b) { return a.path < b.path; }

}  // namespace

std::vector<Source> parse_sources(const std::vector<std::string>& entries, Mix mix) {
  std::vector<Source> sources;
  const auto add = [&sources](Source source) {
    if (source.factor > 0) {
      sources.push_back(std::move(source));
    }
  };
  for (const auto& entry : entries) {
    if (exists(entry)) {
      add({entry, 1});
      continue;
    }
    std::string_view rest = entry;
    while (true) {
      const auto comma = rest.find(',');
      add(parse_source(rest.substr(0, comma), entry, mix));
      if (comma == std::string_view::npos) {
        break;
      }
      rest.remove_prefix(comma + 1);
    }
  }
  if (sources.empty()) {
    throw lb::Error(LB_INVALID_ARGUMENT,
                    "data_path names no data: give a folder or a *.parquet file");
  }
  return sources;
}

std::vector<std::string> FileList::paths() const {
  std::vector<std::string> paths;
  for (const auto& file : files) {
    paths.push_back(file.path);
  }
  return paths;
}

FileList list_files(const std::vector<Source>& sources, Mix mix) {
  FileList all;
  for (const auto& source : sources) {
    auto files = files_of(source);
    std::sort(files.begin(), files.end(), is_before);
    const auto repeats = mix == Mix::kRepeat ? static_cast<int64_t>(source.factor) : 1;
    for (int64_t i = 0; i < repeats; ++i) {
      all.files.insert(all.files.end(), files.begin(), files.end());
    }
    if (mix == Mix::kWeight) {
      all.ends.push_back(all.files.size());
    }
  }
  if (mix == Mix::kRepeat) {
    std::stable_sort(all.files.begin(), all.files.end(), is_before);
  }
  return all;
}

}  // namespace parquet_data
