// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <exception>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/plugin/registry.hpp"
#include "host/commands.hpp"
#include "host/engine.hpp"
#include "host/plugin_files.hpp"

namespace limbeck::host {
namespace {

namespace fs = std::filesystem;

// Kind, name, plugin, version; the summary has no width.
using Row = std::array<std::string, 5>;

std::vector<std::string> plugins_in_path() {
  std::vector<std::string> paths;
  for (const auto& folder : Registry::search_path()) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored)) {
      if (entry.path().extension() == ".so") {
        paths.push_back(entry.path().string());
      }
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<Row> rows_of(const Registry& registry) {
  std::vector<Row> rows;
  for (const auto& component : registry.components()) {
    rows.push_back({component.kind(), component.name(), component.library->name,
                    component.library->plugin->version, component.summary()});
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

void print(std::vector<Row> rows) {
  if (rows.empty()) {
    return;
  }
  rows.insert(rows.begin(), Row{"KIND", "NAME", "PLUGIN", "VERSION", "SUMMARY"});
  std::array<size_t, 4> widths{};
  for (const auto& row : rows) {
    for (size_t i = 0; i < widths.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  for (const auto& row : rows) {
    for (size_t i = 0; i < widths.size(); ++i) {
      std::cout << row[i] << std::string(widths[i] + 2 - row[i].size(), ' ');
    }
    std::cout << row.back() << '\n';
  }
}

}  // namespace

void plugin_list(const Options& options) {
  auto& registry = *new Registry;  // never destroyed: its libraries stay open
  open_on_demand(registry);
  if (options.manifest.is_strict) {
    registry.be_strict();
  }
  std::exception_ptr fault;
  try {
    if (options.plugins.size() == 1 && options.plugins.front().ends_with(".toml")) {
      load_manifest(options.plugins.front(), {}, registry);
    } else {
      load_plugins(options.plugins.empty() ? plugins_in_path() : options.plugins, registry);
    }
  } catch (const Error&) {
    fault = std::current_exception();
  }
  // What could be loaded is worth seeing beside what could not.
  print(rows_of(registry));
  if (fault) {
    std::rethrow_exception(fault);
  }
}

}  // namespace limbeck::host
