// SPDX-License-Identifier: Apache-2.0
// What `limbeck inspect` says of each kind of thing. All of it goes to standard output; faults are
// thrown as Error.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "core/manifest/manifest.hpp"

namespace limbeck::host {

struct InspectOptions {
  std::string filter;                   // of weights: parts of a name; empty: all
  bool has_stats = false;               // reads all values of weights, all rows of data sets
  int64_t samples = 3;                  // of data sets: rows that are shown, at least 0
  std::filesystem::path contact_sheet;  // of data sets: a PNG file; empty: none
};

// A file, an index or a folder of weights.
void inspect_weights(const std::filesystem::path& path, const InspectOptions& options);

// A file or a folder of files with the extension `format`: the data set component of that name
// reads it.
void inspect_data(const std::filesystem::path& path,
                  const std::string& format,
                  const InspectOptions& options);

void inspect_manifest(const std::filesystem::path& path, const InspectOptions& options);

// What a manifest calls a data set, and its samples. Its plugin has been started with the plain
// services.
void print_data(const ComponentSpec& dataset, const InspectOptions& options);

// "1.42 GB", "17 bytes".
std::string bytes_text(uint64_t bytes);
// "1,418,996,800"
std::string count_text(uint64_t count);

}  // namespace limbeck::host
