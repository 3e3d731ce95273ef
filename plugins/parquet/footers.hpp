// SPDX-License-Identifier: Apache-2.0
// What the footers of Parquet files say. Arrow's headers stay out of here.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace parquet {
class FileMetaData;
}

namespace parquet_data {

// What to read of each row.
struct Columns {
  std::vector<std::string> tensors;         // names of triples
  std::vector<std::string> texts;           // must exist
  std::vector<std::string> optional_texts;  // may be missing in a file

  bool operator==(const Columns&) const = default;
};

enum class ColumnType { kBytes, kShape, kText, kOther };

struct Footer {
  struct Type {
    ColumnType type = ColumnType::kOther;
    std::string name;  // Arrow's
  };

  std::vector<int64_t> group_rows;
  std::vector<std::vector<int64_t>> leaf_bytes;    // of every group and column, not compressed
  std::map<std::string, std::vector<int>> leaves;  // column numbers of a top-level column
  std::map<std::string, Type> types;               // of a top-level column
  std::string compression;                         // of the tensors' values: "zstd"
  uint64_t file_bytes = 0;
  std::shared_ptr<parquet::FileMetaData> metadata;

  // The column numbers of all `columns` that the file has.
  std::vector<int> leaves_of(const std::vector<std::string>& columns) const;
  // Bytes of these columns in memory.
  int64_t bytes_of(size_t group, const Columns& columns) const;
};

// The footer of a file; read once in the process as long as size and time of the file stay. Throws
// lb::Error(LB_DATA_LOSS) that names the file. [any]
std::shared_ptr<const Footer> footer_of(const std::string& path);

// Those of all files, several at once.
std::vector<std::shared_ptr<const Footer>> footers_of(const std::vector<std::string>& paths);

// Throws lb::Error(LB_INVALID_ARGUMENT) for a column that is missing or of another type.
void check_columns(const Footer& footer, const std::string& path, const Columns& columns);

}  // namespace parquet_data
