// SPDX-License-Identifier: Apache-2.0
#include "sample_files.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include <limbeck/error.hpp>

#include "group_cache.hpp"
#include "number_formats.hpp"
#include "parallel.hpp"
#include "row_group.hpp"

namespace parquet_data {
namespace {

std::string shape_text(const std::vector<int64_t>& sizes) {
  std::string text = "[";
  for (size_t i = 0; i < sizes.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  }
  return text + "]";
}

// The number of elements; -1 for no sizes, a negative size or a product out of range.
int64_t elements(const std::vector<int64_t>& sizes) {
  int64_t count = sizes.empty() ? -1 : 1;
  for (const auto size : sizes) {
    if (size < 0 || __builtin_mul_overflow(count, size, &count)) {
      return -1;
    }
  }
  return count;
}

}  // namespace

// What all instances with the same files have in common.
struct SampleFiles::Shared {
  struct Group {
    size_t file;
    int index;          // in the file
    int64_t first_row;  // in the file
    int64_t begin;      // global row
  };

  explicit Shared(int64_t bytes) : cache_bytes(bytes), cache(bytes) {}

  std::vector<std::string> files;
  Columns columns;
  int64_t cache_bytes;
  std::vector<std::shared_ptr<const Footer>> footers;  // of each file
  std::vector<Group> groups;
  std::vector<int64_t> ends;       // of groups
  std::vector<int64_t> file_ends;  // of files
  int64_t largest_group = 1;       // bytes
  GroupCache cache;

  std::mutex shapes_mutex;
  std::map<size_t, ShapeCounts> shapes;  // by tensor

  bool is_like(const Shared& other) const {
    return cache_bytes == other.cache_bytes && columns == other.columns && files == other.files &&
           footers == other.footers;
  }
  const Footer& unchanged_footer(const Group& group) const;
  std::shared_ptr<const RowGroup> read(const Group& group) const;
  ShapeCounts count_shapes(const std::string& tensor) const;
};

// The footer that was read when the data set was opened, as long as the file is the same.
const Footer& SampleFiles::Shared::unchanged_footer(const Group& group) const {
  const auto& path = files[group.file];
  if (footer_of(path) != footers[group.file]) {
    throw lb::Error(LB_DATA_LOSS,
                    "cannot read '" + path + "': it has changed since the data set was opened");
  }
  return *footers[group.file];
}

std::shared_ptr<const RowGroup> SampleFiles::Shared::read(const Group& group) const {
  return read_row_group(files[group.file], unchanged_footer(group), group.index, columns);
}

ShapeCounts SampleFiles::Shared::count_shapes(const std::string& tensor) const {
  std::vector<std::vector<std::vector<int64_t>>> of_groups(groups.size());
  for_each_parallel(groups.size(), [&](size_t i) {
    const auto& group = groups[i];
    of_groups[i] = read_shapes(files[group.file], unchanged_footer(group), group.index, tensor);
  });
  ShapeCounts counts;
  for (size_t i = 0; i < groups.size(); ++i) {
    int64_t row = groups[i].begin;
    for (auto& sizes : of_groups[i]) {
      auto& count = counts.try_emplace(std::move(sizes), ShapeCount{0, row}).first->second;
      ++count.rows;
      ++row;
    }
  }
  return counts;
}

SampleFiles::SampleFiles(std::vector<std::string> files, Columns columns, int64_t cache_bytes) {
  auto mine = std::make_shared<Shared>(cache_bytes);
  mine->columns = std::move(columns);
  auto distinct = files;
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  const auto read = footers_of(distinct);
  std::map<std::string, std::shared_ptr<const Footer>> by_path;
  for (size_t i = 0; i < distinct.size(); ++i) {
    check_columns(*read[i], distinct[i], mine->columns);
    by_path[distinct[i]] = read[i];
  }
  mine->files = std::move(files);
  int64_t rows = 0;
  for (size_t file = 0; file < mine->files.size(); ++file) {
    const auto& footer = by_path.at(mine->files[file]);
    mine->footers.push_back(footer);
    int64_t first_row = 0;
    for (size_t i = 0; i < footer->group_rows.size(); ++i) {
      const auto group_rows = footer->group_rows[i];
      if (group_rows > 0) {
        const auto index = static_cast<int>(i);
        mine->groups.push_back({file, index, first_row, rows});
        rows += group_rows;
        mine->ends.push_back(rows);
        mine->largest_group = std::max(mine->largest_group, footer->bytes_of(i, mine->columns));
      }
      first_row += group_rows;
    }
    mine->file_ends.push_back(rows);
  }
  if (rows == 0) {
    throw lb::Error(LB_INVALID_ARGUMENT,
                    mine->files.empty()
                        ? "no files to read"
                        : "no rows in '" + mine->files.front() + "'" +
                              (mine->files.size() > 1 ? " and the other files" : ""));
  }
  shared_ = share(std::move(mine));
}

SampleFiles::~SampleFiles() = default;

// What another living instance has, if it is the same.
std::shared_ptr<SampleFiles::Shared> SampleFiles::share(std::shared_ptr<Shared> mine) {
  static std::mutex mutex;
  static std::vector<std::weak_ptr<Shared>> living;
  const std::lock_guard lock(mutex);
  living.erase(std::remove_if(living.begin(), living.end(),
                              [](const auto& other) { return other.expired(); }),
               living.end());
  for (const auto& other : living) {
    auto shared = other.lock();
    if (shared != nullptr && shared->is_like(*mine)) {
      return shared;
    }
  }
  living.push_back(mine);
  return mine;
}

int64_t SampleFiles::rows() const { return shared_->ends.back(); }

const std::vector<int64_t>& SampleFiles::ends() const { return shared_->ends; }

int64_t SampleFiles::end_of_files(size_t count) const {
  return count == 0 ? 0 : shared_->file_ends.at(count - 1);
}

int64_t SampleFiles::kept_groups() const {
  return std::max<int64_t>(1, shared_->cache_bytes / shared_->largest_group);
}

const std::vector<std::shared_ptr<const Footer>>& SampleFiles::footers() const {
  return shared_->footers;
}

int64_t SampleFiles::reads() const { return shared_->cache.reads(); }

size_t SampleFiles::group_of(int64_t row) const {
  const auto& ends = shared_->ends;
  return static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), row) - ends.begin());
}

std::string SampleFiles::place_of(int64_t row) const {
  const auto& place = shared_->groups[group_of(row)];
  return "'" + shared_->files[place.file] + "', row " +
         std::to_string(place.first_row + row - place.begin);
}

Sample SampleFiles::read(int64_t row) const {
  if (row < 0 || row >= rows()) {
    throw lb::Error(LB_OUT_OF_RANGE,
                    "row " + std::to_string(row) + " of a data set with " + std::to_string(rows()));
  }
  const auto group = group_of(row);
  const auto& place = shared_->groups[group];
  const auto loaded = shared_->cache.get(group, [&] { return shared_->read(place); });
  const auto at = static_cast<size_t>(row - place.begin);
  const auto fail_at = [&](const std::string& column, const std::string& what) {
    throw lb::Error(LB_DATA_LOSS, place_of(row) + ", column '" + column + "': " + what);
  };
  Sample sample;
  for (size_t i = 0; i < shared_->columns.tensors.size(); ++i) {
    const auto& name = shared_->columns.tensors[i];
    const auto& triple = loaded->tensors[i];
    const auto bytes = triple.bytes.rows[at];
    const auto dtype = triple.dtypes.rows[at];
    Values values;
    values.sizes = triple.shapes[at];
    if (bytes.empty()) {
      fail_at(name + "_bytes", "no data; this sample was stored without it");
    }
    const auto width = width_of(dtype);
    if (width == 0) {
      fail_at(name + "_dtype", "'" + std::string(dtype) + "' is none of " + supported_types());
    }
    const auto count = elements(values.sizes);
    if (count < 0) {
      fail_at(name + "_shape", shape_text(values.sizes) + " is no shape");
    }
    if (bytes.size() / width != static_cast<size_t>(count) || bytes.size() % width != 0) {
      fail_at(name + "_bytes", std::to_string(bytes.size()) + " bytes, but " +
                                   shape_text(values.sizes) + " of " + std::string(dtype) +
                                   " needs " + std::to_string(count) + " values of " +
                                   std::to_string(width));
    }
    if (is_float32(dtype)) {
      values.data = reinterpret_cast<const std::byte*>(bytes.data());
      values.owner = loaded;
    } else {
      std::string refused;
      std::shared_ptr<const float[]> floats = to_floats(bytes, dtype, refused);
      if (floats == nullptr) {
        fail_at(name + "_bytes",
                refused + " of type " + std::string(dtype) + " does not fit into a 32-bit float");
      }
      values.data = reinterpret_cast<const std::byte*>(floats.get());
      values.owner = std::move(floats);
    }
    sample.tensors.push_back(std::move(values));
  }
  for (const auto& column : loaded->texts) {
    sample.texts.emplace_back(column.rows[at]);
  }
  for (const auto& column : loaded->optional_texts) {
    const bool is_there = at < column.rows.size() && !column.is_null[at];
    sample.optional_texts.push_back(is_there ? std::optional<std::string>(column.rows[at])
                                             : std::nullopt);
  }
  return sample;
}

const ShapeCounts& SampleFiles::shapes(size_t tensor) const {
  const std::lock_guard lock(shared_->shapes_mutex);
  const auto known = shared_->shapes.find(tensor);
  if (known != shared_->shapes.end()) {
    return known->second;
  }
  auto counts = shared_->count_shapes(shared_->columns.tensors.at(tensor));
  return shared_->shapes.emplace(tensor, std::move(counts)).first->second;
}

}  // namespace parquet_data
