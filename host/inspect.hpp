// SPDX-License-Identifier: Apache-2.0
// What `limbeck inspect` says of each kind of thing. All of it goes to standard output; faults are
// thrown as Error.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "core/dcp/value.hpp"
#include "core/manifest/manifest.hpp"
#include "core/transfer/tensor_files.hpp"

namespace limbeck::host {

struct InspectOptions {
  std::string filter;                   // of weights: parts of a name; empty: all
  bool has_stats = false;               // reads all values of weights, all rows of data sets
  int64_t samples = 3;                  // of data sets: rows that are shown, at least 0
  std::filesystem::path contact_sheet;  // of data sets: a PNG file; empty: none
  bool verifies = false;                // recomputes the sums of everything that has some
};

// A file, an index or a folder of weights.
void inspect_weights(const std::filesystem::path& path, const InspectOptions& options);

// A checkpoint of limbeck.
void inspect_checkpoint(const std::filesystem::path& folder, const InspectOptions& options);
// A folder with .metadata: a distributed checkpoint of PyTorch or limbeck.
void inspect_dcp(const std::filesystem::path& folder, const InspectOptions& options);
// A folder with the record of an export in it: what that says. `verifies`: as above.
void inspect_export_record(const std::filesystem::path& folder, const InspectOptions& options);

// What is different between the tensors, and the values of checkpoints, of two things that have
// some. Returns whether anything is. `prefix`: see compare_tensors().
bool print_differences(const std::filesystem::path& first,
                       const std::filesystem::path& second,
                       const std::string& prefix);

// A file or a folder of files with the extension `format`: the data set component of that name
// reads it.
void inspect_data(const std::filesystem::path& path,
                  const std::string& format,
                  const InspectOptions& options);

void inspect_manifest(const std::filesystem::path& path, const InspectOptions& options);

// What a manifest calls a data set, and its samples. Its plugin has been started with the plain
// services.
void print_data(const ComponentSpec& dataset, const InspectOptions& options);

// How many tensors, numbers and bytes there are, and of which types.
void print_totals(const TensorFiles& files);
// One line for each tensor, or for those that are alike in all blocks.
void print_tensors(const TensorFiles& files, const InspectOptions& options);

// A Python value as Python writes it: "{'lr': 0.001}".
std::string value_text(const DcpValue& value);

// "1.42 GB", "17 bytes".
std::string bytes_text(uint64_t bytes);
// "1,418,996,800"
std::string count_text(uint64_t count);

}  // namespace limbeck::host
