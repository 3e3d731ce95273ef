// SPDX-License-Identifier: Apache-2.0
// From what a manifest says about the place of the data to the list of files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace parquet_data {

enum class Mix { kRepeat, kWeight };

struct Source {
  std::string path;  // a folder or a file
  // Mix::kRepeat: how often its rows are in the data set, an integer; Mix::kWeight: its share of
  // an epoch, relative to the others.
  double factor = 1;
};

// Sources of the entries of `data_path`: each is a path, or several separated by commas, and each
// path may end in ":factor". Sources with a factor of 0 are left out. An entry that exists as it is
// written is one path, whatever is in its name. Throws lb::Error(LB_INVALID_ARGUMENT) for an empty
// path, a negative factor, a count that is no integer, and when nothing is left.
std::vector<Source> parse_sources(const std::vector<std::string>& entries, Mix mix = Mix::kRepeat);

struct DataFile {
  std::string path;  // absolute and real
  std::string name;  // below its source: the same on every machine
};

struct FileList {
  std::vector<DataFile> files;
  std::vector<size_t> ends;  // Mix::kWeight: of each source, in `files`; else empty

  std::vector<std::string> paths() const;
};

// The files of all sources: a file itself, or every *.parquet below a folder, links followed.
// Mix::kRepeat: sorted by path, each as often as its source says, so that repeats are neighbours.
// Mix::kWeight: source after source, each sorted. Throws lb::Error(LB_NOT_FOUND) for a source that
// does not exist or has no such file.
FileList list_files(const std::vector<Source>& sources, Mix mix = Mix::kRepeat);

}  // namespace parquet_data
