// SPDX-License-Identifier: Apache-2.0
// Samples in Parquet files. A tensor is three columns: <name>_bytes (binary: little-endian values,
// row by row), <name>_shape (list<int64>) and <name>_dtype (string). Other columns are plain text.
//
// Arrow stays behind this interface: its headers are slow to compile.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace parquet_data {

// What to read of each row.
struct Columns {
  std::vector<std::string> tensors;         // names of triples
  std::vector<std::string> texts;           // must exist
  std::vector<std::string> optional_texts;  // may be missing in a file
};

// Values of one tensor in 32 bits. Lent by `owner` or converted.
struct Values {
  std::vector<int64_t> sizes;
  const float* data = nullptr;
  std::shared_ptr<const void> owner;
};

// One row, in the order of Columns.
struct Sample {
  std::vector<Values> tensors;
  std::vector<std::string> texts;
  std::vector<std::optional<std::string>> optional_texts;
};

// What the footer of a file says; kept for the process as long as the file does not change.
struct Footer;
struct RowGroup;

// Rows of all files in order. A row group is decoded once while it stays in the cache, which keeps
// the groups used last up to a number of bytes, and always the newest one. One thread at a time.
class SampleFiles {
 public:
  // Reads the footers, several files at once, and checks the columns of every file. Throws
  // lb::Error that names the file and what is wrong: LB_DATA_LOSS for a damaged file,
  // LB_INVALID_ARGUMENT for missing or wrong columns and when there is no row at all.
  SampleFiles(std::vector<std::string> files, Columns columns, int64_t cache_bytes);
  ~SampleFiles();
  SampleFiles(const SampleFiles&) = delete;
  SampleFiles& operator=(const SampleFiles&) = delete;

  int64_t rows() const { return ends_.empty() ? 0 : ends_.back(); }
  // Where row groups end, ascending; empty ones are left out.
  const std::vector<int64_t>& ends() const { return ends_; }

  // A row in [0, rows()). Types float32, float64, float16 and bfloat16 become 32-bit values.
  // Throws lb::Error(LB_DATA_LOSS) that names file, row in the file and column: no bytes, a number
  // of bytes that is not that of shape and type, an unknown type, a file that cannot be decoded or
  // has changed.
  Sample read(int64_t row);
  // The shape of one tensor of row 0, without decoding its values.
  std::vector<int64_t> first_sizes(size_t tensor);

  // Row groups decoded so far; shows that the cache works.
  int64_t decoded() const { return decoded_; }

 private:
  struct Group {
    size_t file;
    int index;          // in the file
    int64_t first_row;  // in the file
    int64_t begin;      // global row
  };

  std::shared_ptr<const RowGroup> load(size_t group);

  std::vector<std::string> files_;
  Columns columns_;
  int64_t cache_bytes_;
  std::vector<Group> groups_;
  std::vector<int64_t> ends_;
  // Newest first.
  std::list<std::pair<size_t, std::shared_ptr<const RowGroup>>> cache_;
  int64_t cached_bytes_ = 0;
  int64_t decoded_ = 0;
};

}  // namespace parquet_data
