// SPDX-License-Identifier: Apache-2.0
#include "sources.hpp"

#include <algorithm>
#include <charconv>
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

Source parse_source(std::string_view text, const std::string& entry) {
  Source source{std::string(trimmed(text)), 1};
  const auto colon = source.path.rfind(':');
  if (colon != std::string::npos && !exists(source.path)) {
    const std::string_view digits = std::string_view(source.path).substr(colon + 1);
    int64_t count = 0;
    const auto [end, fault] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
    if (fault == std::errc() && end == digits.data() + digits.size()) {
      source.repeat = count;
      source.path.resize(colon);
    }
  }
  if (source.path.empty()) {
    throw lb::Error(LB_INVALID_ARGUMENT, "data_path: an empty path in '" + entry + "'");
  }
  return source;
}

void add_folder(const std::string& folder, std::vector<std::string>& files) {
  std::error_code fault;
  fs::recursive_directory_iterator entries(folder, fs::directory_options::follow_directory_symlink,
                                           fault);
  for (; !fault && entries != fs::recursive_directory_iterator(); entries.increment(fault)) {
    if (entries->path().extension() == ".parquet" && entries->is_regular_file(fault)) {
      files.push_back(fs::canonical(entries->path()).string());
    }
  }
  if (fault) {
    throw lb::Error(LB_UNAVAILABLE, "cannot list '" + folder + "': " + fault.message());
  }
  if (files.empty()) {
    throw lb::Error(LB_NOT_FOUND, "data_path: no *.parquet file below '" + folder + "'");
  }
}

}  // namespace

std::vector<Source> parse_sources(const std::vector<std::string>& entries) {
  std::vector<Source> sources;
  const auto add = [&sources](Source source) {
    if (source.repeat > 0) {
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
      add(parse_source(rest.substr(0, comma), entry));
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

std::vector<std::string> list_files(const std::vector<Source>& sources) {
  std::vector<std::string> all;
  for (const auto& source : sources) {
    std::vector<std::string> files;
    std::error_code ignored;
    if (fs::is_directory(source.path, ignored)) {
      add_folder(source.path, files);
    } else if (exists(source.path)) {
      files.push_back(fs::canonical(source.path).string());
    } else {
      throw lb::Error(LB_NOT_FOUND, "data_path: '" + source.path + "' does not exist (from '" +
                                        fs::current_path(ignored).string() + "')");
    }
    for (int64_t i = 0; i < source.repeat; ++i) {
      all.insert(all.end(), files.begin(), files.end());
    }
  }
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace parquet_data
