// SPDX-License-Identifier: Apache-2.0
// One row group of a file in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "footers.hpp"

namespace parquet_data {

// Cells of a column: what a row has, and whether it is null.
struct ByteCells {
  std::vector<std::string_view> rows;  // empty for null; valid as long as `owners` live
  std::vector<bool> is_null;
  std::vector<std::shared_ptr<const void>> owners;
  int64_t bytes = 0;  // of the owners
};

struct RowGroup {
  struct Triple {
    ByteCells bytes;
    std::vector<std::vector<int64_t>> shapes;  // empty for null
    ByteCells dtypes;
  };

  std::vector<Triple> tensors;
  std::vector<ByteCells> texts;
  std::vector<ByteCells> optional_texts;  // without rows where the file has no such column
  int64_t bytes = 0;
};

// Reads the columns that `footer`, which is of this file, has. Bytes that the file stores as they
// are stay where they were read to. Throws lb::Error(LB_DATA_LOSS) that names the file. [any]
std::shared_ptr<const RowGroup> read_row_group(const std::string& path,
                                               const Footer& footer,
                                               int group,
                                               const Columns& columns);

// The shapes of one tensor in a row group, without its values. [any]
std::vector<std::vector<int64_t>> read_shapes(const std::string& path,
                                              const Footer& footer,
                                              int group,
                                              const std::string& tensor);

}  // namespace parquet_data
