// SPDX-License-Identifier: Apache-2.0
#include "sample_files.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <exception>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>

#include <limbeck/error.hpp>

namespace parquet_data {

static_assert(std::endian::native == std::endian::little, "files hold little-endian values");

struct Footer {
  std::vector<int64_t> group_rows;
  std::shared_ptr<arrow::Schema> schema;
  std::map<std::string, std::vector<int>> leaves;  // of a top-level column
};

// One decoded row group; columns that are missing in the file are null.
struct RowGroup {
  struct Triple {
    std::shared_ptr<arrow::ChunkedArray> bytes, shape, dtype;
  };
  std::vector<Triple> tensors;
  std::vector<std::shared_ptr<arrow::ChunkedArray>> texts;
  std::vector<std::shared_ptr<arrow::ChunkedArray>> optional_texts;
  int64_t bytes = 0;
};

namespace {

namespace fs = std::filesystem;

// ---- Arrow's faults as ours

[[noreturn]] void fail(const std::string& file, const std::string& reason) {
  throw lb::Error(LB_DATA_LOSS, "cannot read '" + file + "': " + reason);
}

template <class T>
T value_of(arrow::Result<T> result, const std::string& file) {
  if (!result.ok()) {
    fail(file, result.status().ToString());
  }
  return std::move(result).ValueUnsafe();
}

void check(const arrow::Status& status, const std::string& file) {
  if (!status.ok()) {
    fail(file, status.ToString());
  }
}

// Runs `body`, which may throw what Parquet throws.
template <class Body>
auto guarded(const std::string& file, Body&& body) {
  try {
    return body();
  } catch (const parquet::ParquetException& fault) {
    fail(file, fault.what());
  }
}

std::unique_ptr<parquet::arrow::FileReader> open_file(const std::string& path) {
  parquet::ArrowReaderProperties properties(/*use_threads=*/false);
  properties.set_pre_buffer(false);
  parquet::arrow::FileReaderBuilder builder;
  check(builder.OpenFile(path), path);
  builder.properties(properties);
  return value_of(builder.Build(), path);
}

// ---- Footers

std::shared_ptr<const Footer> read_footer(const std::string& path) {
  return guarded(path, [&path] {
    const auto reader = open_file(path);
    const auto metadata = reader->parquet_reader()->metadata();
    auto footer = std::make_shared<Footer>();
    for (int group = 0; group < metadata->num_row_groups(); ++group) {
      footer->group_rows.push_back(metadata->RowGroup(group)->num_rows());
    }
    check(reader->GetSchema(&footer->schema), path);
    const auto* columns = metadata->schema();
    for (int leaf = 0; leaf < columns->num_columns(); ++leaf) {
      footer->leaves[columns->GetColumnRoot(leaf)->name()].push_back(leaf);
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
      if (known != known_.end() && known->second.size == size && known->second.time == time) {
        return known->second.footer;
      }
    }
    auto footer = read_footer(path);
    const std::lock_guard lock(mutex_);
    known_[path] = {size, time, footer};
    return footer;
  }

 private:
  struct Known {
    uintmax_t size = 0;
    fs::file_time_type time;
    std::shared_ptr<const Footer> footer;
  };
  std::mutex mutex_;
  std::map<std::string, Known> known_;
};

Footers& footers() {
  static Footers instance;
  return instance;
}

std::vector<std::shared_ptr<const Footer>> read_footers(const std::vector<std::string>& files) {
  // Latency, not bandwidth, is what footers cost on a shared file system.
  constexpr size_t kMostThreads = 8;
  constexpr size_t kFilesPerThread = 4;
  std::vector<std::shared_ptr<const Footer>> result(files.size());
  std::vector<std::exception_ptr> faults(files.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < files.size(); i = next++) {
      try {
        result[i] = footers().get(files[i]);
      } catch (...) {
        faults[i] = std::current_exception();
      }
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min(kMostThreads, files.size() / kFilesPerThread); ++i) {
    threads.emplace_back(work);
  }
  work();
  for (auto& thread : threads) {
    thread.join();
  }
  for (const auto& fault : faults) {
    if (fault) {
      std::rethrow_exception(fault);
    }
  }
  return result;
}

// ---- Columns

enum class ColumnType { kBytes, kShape, kText };

bool fits(const arrow::DataType& type, ColumnType wanted) {
  switch (wanted) {
    case ColumnType::kBytes:
      return type.id() == arrow::Type::BINARY || type.id() == arrow::Type::LARGE_BINARY;
    case ColumnType::kShape:
      return type.id() == arrow::Type::LIST &&
             static_cast<const arrow::ListType&>(type).value_type()->id() == arrow::Type::INT64;
    case ColumnType::kText:
      return type.id() == arrow::Type::STRING || type.id() == arrow::Type::LARGE_STRING;
  }
  return false;
}

const char* name_of(ColumnType type) {
  switch (type) {
    case ColumnType::kBytes:
      return "binary";
    case ColumnType::kShape:
      return "list<int64>";
    case ColumnType::kText:
      return "string";
  }
  return "";
}

void check_column(const Footer& footer,
                  const std::string& file,
                  const std::string& name,
                  ColumnType type,
                  bool is_optional = false) {
  const auto field = footer.schema->GetFieldByName(name);
  if (field == nullptr) {
    if (is_optional) {
      return;
    }
    std::string all;
    for (const auto& other : footer.schema->field_names()) {
      all += (all.empty() ? "" : ", ") + other;
    }
    throw lb::Error(LB_INVALID_ARGUMENT,
                    "'" + file + "' has no column '" + name + "'; its columns are " + all);
  }
  if (!fits(*field->type(), type)) {
    throw lb::Error(LB_INVALID_ARGUMENT, "'" + file + "': column '" + name + "' is " +
                                             field->type()->ToString() + ", expected " +
                                             name_of(type));
  }
}

void check_columns(const Footer& footer, const std::string& file, const Columns& columns) {
  for (const auto& name : columns.tensors) {
    check_column(footer, file, name + "_bytes", ColumnType::kBytes);
    check_column(footer, file, name + "_shape", ColumnType::kShape);
    check_column(footer, file, name + "_dtype", ColumnType::kText);
  }
  for (const auto& name : columns.texts) {
    check_column(footer, file, name, ColumnType::kText);
  }
  for (const auto& name : columns.optional_texts) {
    check_column(footer, file, name, ColumnType::kText, /*is_optional=*/true);
  }
}

// ---- Cells

struct Cell {
  const arrow::Array* chunk;  // nullptr: the value is null
  int64_t row;
};

Cell cell(const arrow::ChunkedArray& column, int64_t row) {
  for (const auto& chunk : column.chunks()) {
    if (row < chunk->length()) {
      return chunk->IsNull(row) ? Cell{nullptr, 0} : Cell{chunk.get(), row};
    }
    row -= chunk->length();
  }
  return {nullptr, 0};
}

// Binary or text of either offset width.
std::string_view bytes_of(const Cell& at) {
  if (at.chunk == nullptr) {
    return {};
  }
  const auto id = at.chunk->type_id();
  if (id == arrow::Type::LARGE_BINARY || id == arrow::Type::LARGE_STRING) {
    return static_cast<const arrow::LargeBinaryArray*>(at.chunk)->GetView(at.row);
  }
  return static_cast<const arrow::BinaryArray*>(at.chunk)->GetView(at.row);
}

std::vector<int64_t> integers_of(const Cell& at) {
  if (at.chunk == nullptr) {
    return {};
  }
  const auto& list = *static_cast<const arrow::ListArray*>(at.chunk);
  const auto& values = static_cast<const arrow::Int64Array&>(*list.values());
  std::vector<int64_t> result;
  for (auto i = list.value_offset(at.row); i < list.value_offset(at.row + 1); ++i) {
    result.push_back(values.Value(i));
  }
  return result;
}

// ---- Number formats

float from_bits(uint32_t bits) { return std::bit_cast<float>(bits); }

float from_half(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000U} << 16;
  const uint32_t exponent = (half >> 10) & 0x1FU;
  const uint32_t fraction = half & 0x3FFU;
  if (exponent == 0x1F) {
    return from_bits(sign | 0x7F800000U | (fraction << 13));
  }
  if (exponent == 0) {  // zero and subnormal numbers: fraction * 2^-24
    const float value = static_cast<float>(fraction) * 0x1p-24F;
    return sign == 0 ? value : -value;
  }
  return from_bits(sign | ((exponent + 112) << 23) | (fraction << 13));
}

float from_bfloat16(uint16_t value) { return from_bits(uint32_t{value} << 16); }

template <class T, class Convert>
std::shared_ptr<const void> convert(std::string_view bytes,
                                    Convert convert_one,
                                    const float*& data) {
  auto values = std::make_shared<std::vector<float>>(bytes.size() / sizeof(T));
  for (size_t i = 0; i < values->size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    (*values)[i] = convert_one(value);
  }
  data = values->data();
  return values;
}

size_t width_of(std::string_view dtype) {
  if (dtype == "float32") {
    return 4;
  }
  if (dtype == "float64") {
    return 8;
  }
  return dtype == "float16" || dtype == "bfloat16" ? 2 : 0;
}

std::string shape_text(const std::vector<int64_t>& sizes) {
  std::string text = "[";
  for (size_t i = 0; i < sizes.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  }
  return text + "]";
}

// The number of elements; -1 for a negative size or a product out of range.
int64_t elements(const std::vector<int64_t>& sizes) {
  int64_t count = 1;
  for (const auto size : sizes) {
    if (size < 0 || __builtin_mul_overflow(count, size, &count)) {
      return -1;
    }
  }
  return count;
}

}  // namespace

SampleFiles::SampleFiles(std::vector<std::string> files, Columns columns, int64_t cache_bytes)
    : files_(std::move(files)), columns_(std::move(columns)), cache_bytes_(cache_bytes) {
  auto distinct = files_;
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  std::map<std::string, std::shared_ptr<const Footer>> by_path;
  const auto read = read_footers(distinct);
  for (size_t i = 0; i < distinct.size(); ++i) {
    check_columns(*read[i], distinct[i], columns_);
    by_path[distinct[i]] = read[i];
  }
  for (size_t file = 0; file < files_.size(); ++file) {
    int64_t first_row = 0;
    const auto& group_rows = by_path.at(files_[file])->group_rows;
    for (size_t group = 0; group < group_rows.size(); ++group) {
      if (group_rows[group] > 0) {
        groups_.push_back({file, static_cast<int>(group), first_row, rows()});
        ends_.push_back(rows() + group_rows[group]);
      }
      first_row += group_rows[group];
    }
  }
  if (ends_.empty()) {
    throw lb::Error(LB_INVALID_ARGUMENT,
                    files_.empty() ? "no files to read"
                                   : "no rows in '" + files_.front() + "'" +
                                         (files_.size() > 1 ? " and the other files" : ""));
  }
}

SampleFiles::~SampleFiles() = default;

std::shared_ptr<const RowGroup> SampleFiles::load(size_t group) {
  for (auto entry = cache_.begin(); entry != cache_.end(); ++entry) {
    if (entry->first == group) {
      cache_.splice(cache_.begin(), cache_, entry);
      return cache_.front().second;
    }
  }
  const auto& place = groups_[group];
  const auto& path = files_[place.file];
  const auto footer = footers().get(path);
  std::vector<int> leaves;
  const auto add = [&](const std::string& name) {
    const auto found = footer->leaves.find(name);
    if (found != footer->leaves.end()) {
      leaves.insert(leaves.end(), found->second.begin(), found->second.end());
    }
  };
  for (const auto& name : columns_.tensors) {
    add(name + "_bytes");
    add(name + "_shape");
    add(name + "_dtype");
  }
  std::for_each(columns_.texts.begin(), columns_.texts.end(), add);
  std::for_each(columns_.optional_texts.begin(), columns_.optional_texts.end(), add);

  const auto expected = ends_[group] - place.begin;
  const auto index = static_cast<size_t>(place.index);
  if (index >= footer->group_rows.size() || footer->group_rows[index] != expected) {
    fail(path, "it has changed since the data set was opened");
  }
  const auto table = guarded(
      path, [&] { return value_of(open_file(path)->ReadRowGroup(place.index, leaves), path); });
  const auto column = [&](const std::string& name) { return table->GetColumnByName(name); };
  auto loaded = std::make_shared<RowGroup>();
  for (const auto& name : columns_.tensors) {
    loaded->tensors.push_back(
        {column(name + "_bytes"), column(name + "_shape"), column(name + "_dtype")});
  }
  for (const auto& name : columns_.texts) {
    loaded->texts.push_back(column(name));
  }
  for (const auto& name : columns_.optional_texts) {
    loaded->optional_texts.push_back(column(name));
  }
  for (const auto& data : table->columns()) {
    for (const auto& chunk : data->chunks()) {
      for (const auto& buffer : chunk->data()->buffers) {
        loaded->bytes += buffer == nullptr ? 0 : buffer->size();
      }
    }
  }
  ++decoded_;
  cached_bytes_ += loaded->bytes;
  cache_.emplace_front(group, loaded);
  while (cached_bytes_ > cache_bytes_ && cache_.size() > 1) {
    cached_bytes_ -= cache_.back().second->bytes;
    cache_.pop_back();
  }
  return loaded;
}

Sample SampleFiles::read(int64_t row) {
  if (row < 0 || row >= rows()) {
    throw lb::Error(LB_OUT_OF_RANGE,
                    "row " + std::to_string(row) + " of a data set with " + std::to_string(rows()));
  }
  const auto group =
      static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), row) - ends_.begin());
  const auto loaded = load(group);
  const auto& place = groups_[group];
  const int64_t at = row - place.begin;
  const auto fail_at = [&](const std::string& column, const std::string& what) {
    throw lb::Error(LB_DATA_LOSS, "'" + files_[place.file] + "', row " +
                                      std::to_string(place.first_row + at) + ", column '" + column +
                                      "': " + what);
  };
  Sample sample;
  for (size_t i = 0; i < columns_.tensors.size(); ++i) {
    const auto& name = columns_.tensors[i];
    const auto& triple = loaded->tensors[i];
    const auto bytes = bytes_of(cell(*triple.bytes, at));
    const auto dtype = bytes_of(cell(*triple.dtype, at));
    Values values;
    values.sizes = integers_of(cell(*triple.shape, at));
    if (bytes.empty()) {
      fail_at(name + "_bytes", "no data; this sample was stored without it");
    }
    const auto width = width_of(dtype);
    if (width == 0) {
      fail_at(name + "_dtype",
              "'" + std::string(dtype) + "' is none of float32, float64, float16, bfloat16");
    }
    const auto count = elements(values.sizes);
    if (values.sizes.empty() || count < 0) {
      fail_at(name + "_shape", shape_text(values.sizes) + " is no shape");
    }
    if (bytes.size() / width != static_cast<size_t>(count) || bytes.size() % width != 0) {
      fail_at(name + "_bytes", std::to_string(bytes.size()) + " bytes, but " +
                                   shape_text(values.sizes) + " of " + std::string(dtype) +
                                   " needs " + std::to_string(count) + " values of " +
                                   std::to_string(width));
    }
    if (dtype == "float64") {
      values.owner = convert<double>(
          bytes, [](double value) { return static_cast<float>(value); }, values.data);
    } else if (dtype == "float16") {
      values.owner = convert<uint16_t>(bytes, from_half, values.data);
    } else if (dtype == "bfloat16") {
      values.owner = convert<uint16_t>(bytes, from_bfloat16, values.data);
    } else if (reinterpret_cast<uintptr_t>(bytes.data()) % alignof(float) != 0) {
      values.owner = convert<float>(
          bytes, [](float value) { return value; }, values.data);
    } else {
      values.data = reinterpret_cast<const float*>(bytes.data());
      values.owner = loaded;
    }
    sample.tensors.push_back(std::move(values));
  }
  for (const auto& column : loaded->texts) {
    sample.texts.emplace_back(bytes_of(cell(*column, at)));
  }
  for (const auto& column : loaded->optional_texts) {
    const auto found = column == nullptr ? Cell{nullptr, 0} : cell(*column, at);
    sample.optional_texts.push_back(
        found.chunk == nullptr ? std::nullopt : std::optional<std::string>(bytes_of(found)));
  }
  return sample;
}

std::vector<int64_t> SampleFiles::first_sizes(size_t tensor) {
  const auto& name = columns_.tensors.at(tensor);
  const auto& path = files_[groups_.front().file];
  const auto column = name + "_shape";
  const auto table = guarded(path, [&] {
    return value_of(open_file(path)->ReadRowGroup(groups_.front().index,
                                                  footers().get(path)->leaves.at(column)),
                    path);
  });
  auto sizes = integers_of(cell(*table->GetColumnByName(column), 0));
  if (sizes.empty() || elements(sizes) < 0) {
    throw lb::Error(LB_DATA_LOSS, "'" + path + "', row " +
                                      std::to_string(groups_.front().first_row) + ", column '" +
                                      column + "': " + shape_text(sizes) + " is no shape");
  }
  return sizes;
}

}  // namespace parquet_data
