// SPDX-License-Identifier: Apache-2.0
// Samples in Parquet files. A tensor is three columns: <name>_bytes (binary: little-endian values,
// row by row), <name>_shape (list<int64>) and <name>_dtype (string). Other columns are plain text.
//
// Arrow stays behind this interface: its headers are slow to compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "footers.hpp"

namespace parquet_data {

// Values of one tensor as 32-bit floats. Lent by `owner` or converted.
struct Values {
  std::vector<int64_t> sizes;
  const std::byte* data = nullptr;  // at any address: to be copied, not read as floats
  std::shared_ptr<const void> owner;

  float value(size_t i) const {
    float value = 0;
    std::memcpy(&value, data + i * sizeof(float), sizeof(float));
    return value;
  }
};

// One row, in the order of Columns.
struct Sample {
  std::vector<Values> tensors;
  std::vector<std::string> texts;
  std::vector<std::optional<std::string>> optional_texts;
};

// How often a shape occurs, and where first.
struct ShapeCount {
  int64_t rows = 0;
  int64_t first_row = 0;
};
using ShapeCounts = std::map<std::vector<int64_t>, ShapeCount>;

// Rows of all files in order. A row group is read once while it stays in the cache, which all
// SampleFiles of the process share that have the same files, columns and cache size. One thread at
// a time for each instance.
class SampleFiles {
 public:
  // Reads the footers, several files at once, and checks the columns of every file. Throws
  // lb::Error that names the file and what is wrong: LB_DATA_LOSS for a damaged file,
  // LB_INVALID_ARGUMENT for missing or wrong columns and when there is no row at all.
  SampleFiles(std::vector<std::string> files, Columns columns, int64_t cache_bytes);
  ~SampleFiles();
  SampleFiles(const SampleFiles&) = delete;
  SampleFiles& operator=(const SampleFiles&) = delete;

  int64_t rows() const;
  // Where row groups end, ascending; empty ones are left out.
  const std::vector<int64_t>& ends() const;
  // Where the rows of files[0] ... files[count - 1] end.
  int64_t end_of_files(size_t count) const;
  // Row groups that the cache holds, if they are all as large as the largest; at least 1.
  int64_t kept_groups() const;
  const std::vector<std::shared_ptr<const Footer>>& footers() const;

  // A row in [0, rows()). Every type of supported_types() becomes 32-bit values. Throws
  // lb::Error(LB_DATA_LOSS) that names file, row in the file and column: no bytes, a number of
  // bytes that is not that of shape and type, an unknown type, a file that cannot be decoded or
  // has changed.
  Sample read(int64_t row) const;
  // The shapes of a tensor in all rows, as they are stored; read without the values, once for all
  // instances.
  const ShapeCounts& shapes(size_t tensor) const;
  // "'/data/a.parquet', row 7": where a row is.
  std::string place_of(int64_t row) const;

  // Row groups read so far, by all instances that share the cache.
  int64_t reads() const;

 private:
  struct Shared;

  static std::shared_ptr<Shared> share(std::shared_ptr<Shared> mine);
  size_t group_of(int64_t row) const;

  std::shared_ptr<Shared> shared_;
};

}  // namespace parquet_data
