// SPDX-License-Identifier: Apache-2.0
// From what a manifest says about the place of the data to the list of files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace parquet_data {

struct Source {
  std::string path;    // a folder or a file
  int64_t repeat = 1;  // how often its rows are in the data set
};

// Sources of the entries of `data_path`: each is a path, or several separated by commas, and each
// path may end in ":count". Sources with a count of 0 or less are left out. An entry that exists
// as it is written is one path, whatever is in its name. Throws lb::Error(LB_INVALID_ARGUMENT)
// for an empty path and when nothing is left.
std::vector<Source> parse_sources(const std::vector<std::string>& entries);

// The files of all sources: a file itself, or every *.parquet below a folder, links followed.
// Absolute real paths, sorted, each as often as its source says, so that repeats are neighbours.
// Throws lb::Error(LB_NOT_FOUND) for a source that does not exist or has no such file.
std::vector<std::string> list_files(const std::vector<Source>& sources);

}  // namespace parquet_data
