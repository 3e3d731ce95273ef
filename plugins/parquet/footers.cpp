// SPDX-License-Identifier: Apache-2.0
#include "footers.hpp"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <utility>

#include <arrow/api.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>

#include "arrow_faults.hpp"
#include "parallel.hpp"

namespace parquet_data {
namespace {

namespace fs = std::filesystem;

ColumnType type_of(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::BINARY:
    case arrow::Type::LARGE_BINARY:
      return ColumnType::kBytes;
    case arrow::Type::STRING:
    case arrow::Type::LARGE_STRING:
      return ColumnType::kText;
    case arrow::Type::LIST:
      return static_cast<const arrow::ListType&>(type).value_type()->id() == arrow::Type::INT64
                 ? ColumnType::kShape
                 : ColumnType::kOther;
    default:
      return ColumnType::kOther;
  }
}

const char* name_of(ColumnType type) {
  switch (type) {
    case ColumnType::kBytes:
      return "binary";
    case ColumnType::kShape:
      return "list<int64>";
    case ColumnType::kText:
      return "string";
    case ColumnType::kOther:
      break;
  }
  return "";
}

std::shared_ptr<const Footer> read_footer(const std::string& path, uint64_t file_bytes) {
  return guarded(path, [&] {
    auto footer = std::make_shared<Footer>();
    footer->file_bytes = file_bytes;
    footer->metadata = parquet::ParquetFileReader::OpenFile(path)->metadata();
    const auto& metadata = *footer->metadata;
    for (int group = 0; group < metadata.num_row_groups(); ++group) {
      const auto about = metadata.RowGroup(group);
      footer->group_rows.push_back(about->num_rows());
      auto& bytes = footer->leaf_bytes.emplace_back();
      for (int leaf = 0; leaf < metadata.num_columns(); ++leaf) {
        bytes.push_back(about->ColumnChunk(leaf)->total_uncompressed_size());
      }
    }
    std::shared_ptr<arrow::Schema> schema;
    check(parquet::arrow::FromParquetSchema(metadata.schema(),
                                            parquet::default_arrow_reader_properties(),
                                            metadata.key_value_metadata(), &schema),
          path);
    for (const auto& field : schema->fields()) {
      footer->types[field->name()] = {type_of(*field->type()), field->type()->ToString()};
    }
    const auto* columns = metadata.schema();
    for (int leaf = 0; leaf < columns->num_columns(); ++leaf) {
      const auto& name = columns->GetColumnRoot(leaf)->name();
      footer->leaves[name].push_back(leaf);
      if (name.ends_with("_bytes") && metadata.num_row_groups() > 0) {
        footer->compression = arrow::util::Codec::GetCodecAsString(
            metadata.RowGroup(0)->ColumnChunk(leaf)->compression());
      }
    }
    return std::shared_ptr<const Footer>(std::move(footer));
  });
}

// Workers open the same files; only the first one reads the footers.
class Footers {
 public:
  std::shared_ptr<const Footer> get(const std::string& path) {
    std::error_code fault;
    const auto size = fs::file_size(path, fault);
    const auto time = fault ? fs::file_time_type() : fs::last_write_time(path, fault);
    if (fault) {
      fail(path, fault.message());
    }
    {
      const std::lock_guard lock(mutex_);
      const auto known = known_.find(path);
      if (known != known_.end() && known->second.footer->file_bytes == size &&
          known->second.time == time) {
        return known->second.footer;
      }
    }
    auto footer = read_footer(path, size);
    const std::lock_guard lock(mutex_);
    known_[path] = {time, footer};
    return footer;
  }

 private:
  struct Known {
    fs::file_time_type time;
    std::shared_ptr<const Footer> footer;
  };
  std::mutex mutex_;
  std::map<std::string, Known> known_;
};

void check_column(const Footer& footer,
                  const std::string& file,
                  const std::string& name,
                  ColumnType type,
                  bool is_optional = false) {
  const auto found = footer.types.find(name);
  if (found == footer.types.end()) {
    if (is_optional) {
      return;
    }
    std::string all;
    for (const auto& [other, unused] : footer.types) {
      all += (all.empty() ? "" : ", ") + other;
    }
    throw lb::Error(LB_INVALID_ARGUMENT,
                    "'" + file + "' has no column '" + name + "'; its columns are " + all);
  }
  if (found->second.type != type) {
    throw lb::Error(LB_INVALID_ARGUMENT, "'" + file + "': column '" + name + "' is " +
                                             found->second.name + ", expected " + name_of(type));
  }
}

}  // namespace

std::vector<int> Footer::leaves_of(const std::vector<std::string>& columns) const {
  std::vector<int> numbers;
  for (const auto& name : columns) {
    const auto found = leaves.find(name);
    if (found != leaves.end()) {
      numbers.insert(numbers.end(), found->second.begin(), found->second.end());
    }
  }
  return numbers;
}

int64_t Footer::bytes_of(size_t group, const Columns& columns) const {
  auto names = columns.texts;
  names.insert(names.end(), columns.optional_texts.begin(), columns.optional_texts.end());
  for (const auto& tensor : columns.tensors) {
    names.push_back(tensor + "_bytes");
  }
  int64_t bytes = 0;
  for (const int leaf : leaves_of(names)) {
    bytes += std::max<int64_t>(0, leaf_bytes[group][static_cast<size_t>(leaf)]);
  }
  return bytes;
}

std::shared_ptr<const Footer> footer_of(const std::string& path) {
  static Footers footers;
  return footers.get(path);
}

std::vector<std::shared_ptr<const Footer>> footers_of(const std::vector<std::string>& paths) {
  std::vector<std::shared_ptr<const Footer>> result(paths.size());
  for_each_parallel(paths.size(), [&](size_t i) { result[i] = footer_of(paths[i]); });
  return result;
}

void check_columns(const Footer& footer, const std::string& path, const Columns& columns) {
  for (const auto& name : columns.tensors) {
    check_column(footer, path, name + "_bytes", ColumnType::kBytes);
    check_column(footer, path, name + "_shape", ColumnType::kShape);
    check_column(footer, path, name + "_dtype", ColumnType::kText);
  }
  for (const auto& name : columns.texts) {
    check_column(footer, path, name, ColumnType::kText);
  }
  for (const auto& name : columns.optional_texts) {
    check_column(footer, path, name, ColumnType::kText, /*is_optional=*/true);
  }
}

}  // namespace parquet_data
