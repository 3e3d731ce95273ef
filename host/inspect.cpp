// SPDX-License-Identifier: Apache-2.0
#include "host/inspect.hpp"

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <sstream>
#include <system_error>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/dcp/index.hpp"
#include "core/transfer/export_role.hpp"
#include "core/transfer/saved_run.hpp"
#include "core/weights/weight_files.hpp"
#include "host/commands.hpp"

namespace limbeck::host {
namespace {

namespace fs = std::filesystem;

// The extension of the files below a folder that some data set reads; empty: none is found.
std::string data_format_in(const fs::path& folder) {
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() == ".parquet") {
      return "parquet";
    }
  }
  return "";
}

bool is_export(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kExportRecord, ignored);
}

bool has_weights(const fs::path& folder) {
  for (const auto& name : file_names(folder)) {
    if (name.ends_with(kWeightsExtension) || name.ends_with(kIndexExtension)) {
      return true;
    }
  }
  return false;
}

void inspect_pipeline(const fs::path& folder, const InspectOptions& options) {
  if (is_export(folder)) {
    inspect_export_record(folder, options);
  } else {
    std::cout << folder.string() << ": a pipeline folder\n";
  }
  std::error_code error;
  std::vector<fs::path> parts;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->is_directory(ignored) && has_weights(it->path())) {
      parts.push_back(it->path());
    }
  }
  std::sort(parts.begin(), parts.end());
  for (const auto& part : parts) {
    std::cout << '\n';
    inspect_weights(part, options);
  }
}

void inspect_folder(const fs::path& path, const InspectOptions& options) {
  std::error_code ignored;
  if (is_checkpoint(path)) {
    return inspect_checkpoint(path, options);
  }
  if (fs::exists(path / kDcpIndexFile, ignored)) {
    return inspect_dcp(path, options);
  }
  if (fs::exists(path / "dcp" / kDcpIndexFile, ignored)) {
    return inspect_dcp(path / "dcp", options);
  }
  if (is_pipeline(path) || (is_export(path) && !has_weights(path))) {
    return inspect_pipeline(path, options);
  }
  if (is_export(path)) {
    inspect_export_record(path, options);
    std::cout << '\n';
  }
  if (has_weights(path)) {
    return inspect_weights(path, options);
  }
  if (const auto format = data_format_in(path); !format.empty()) {
    return inspect_data(path, format, options);
  }
  throw Error(Fault::kData,
              cat(path.string(), ": nothing in this folder is known: no ", kRecordFile,
                  ", no *.safetensors, no *.parquet"),
              "name a file");
}

void inspect_path(const fs::path& path, const InspectOptions& options, const Options& command) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    throw Error(Fault::kData, cat(path.string(), " does not exist"));
  }
  const auto extension = path.extension().string();
  if (fs::is_directory(path, ignored)) {
    inspect_folder(path, options);
  } else if (extension == ".toml") {
    inspect_manifest(path, options);
  } else if (extension == ".safetensors" || extension == ".json") {
    inspect_weights(path, options);
  } else if (extension == ".so") {
    auto plugin = command;
    plugin.command = Command::kPluginInfo;
    plugin.plugins = {fs::absolute(path).string()};
    plugin_info(plugin);
  } else if (extension == ".parquet") {
    inspect_data(path, "parquet", options);
  } else {
    throw Error(Fault::kData, cat(path.string(), ": nothing is known of files like this"),
                "known are checkpoints (folders), manifests (.toml), weights (.safetensors, their "
                "index, folders), data sets (.parquet, folders) and plugins (.so)");
  }
}

}  // namespace

std::string bytes_text(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"bytes", "kB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1000 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  std::ostringstream text;
  text << std::fixed << std::setprecision(unit == 0 ? 0 : 2) << value << ' ' << kUnits[unit];
  return text.str();
}

std::string count_text(uint64_t count) {
  auto text = std::to_string(count);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3) {
    text.insert(static_cast<size_t>(at), 1, ',');
  }
  return text;
}

int inspect(const Options& options) {
  if (options.is_diff) {
    return print_differences(options.paths[0], options.paths[1], options.prefix) ? 1 : 0;
  }
  InspectOptions inspected;
  inspected.verifies = options.verifies;
  inspected.filter = options.filter;
  inspected.has_stats = options.has_stats;
  inspected.samples = options.samples;
  inspected.contact_sheet = options.contact_sheet;
  bool is_first = true;
  for (const auto& path : options.paths) {
    std::cout << (is_first ? "" : "\n");
    is_first = false;
    inspect_path(path, inspected, options);
  }
  return 0;
}

}  // namespace limbeck::host
