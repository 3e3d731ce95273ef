// SPDX-License-Identifier: Apache-2.0
#include "row_group.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <arrow/buffer.h>
#include <arrow/io/interfaces.h>
#include <parquet/column_reader.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>

#include "arrow_faults.hpp"

namespace parquet_data {
namespace {

// A file that remembers what it has read: Parquet hands out pointers into pages that are stored
// as they are, and they stay valid as long as the buffer they were read to.
class KeepingFile : public arrow::io::RandomAccessFile {
 public:
  explicit KeepingFile(const std::string& path)
      : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    struct stat about {};
    if (descriptor_ < 0 || ::fstat(descriptor_, &about) != 0) {
      fail(path, std::generic_category().message(errno));
    }
    size_ = about.st_size;
    set_mode(arrow::io::FileMode::READ);
  }
  ~KeepingFile() override { ::close(descriptor_); }

  // What holds these bytes; null if they were not read from the file.
  std::shared_ptr<arrow::Buffer> owner_of(const uint8_t* data, size_t size) const {
    for (const auto& buffer : buffers_) {
      if (data >= buffer->data() && data + size <= buffer->data() + buffer->size()) {
        return buffer;
      }
    }
    return nullptr;
  }
  void forget() { buffers_.clear(); }

  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(int64_t position, int64_t bytes) override {
    ARROW_ASSIGN_OR_RAISE(std::shared_ptr<arrow::ResizableBuffer> buffer,
                          arrow::AllocateResizableBuffer(bytes));
    ARROW_ASSIGN_OR_RAISE(const int64_t read, ReadAt(position, bytes, buffer->mutable_data()));
    ARROW_RETURN_NOT_OK(buffer->Resize(read, /*shrink_to_fit=*/false));
    buffers_.push_back(buffer);
    return buffer;
  }
  arrow::Result<int64_t> ReadAt(int64_t position, int64_t bytes, void* out) override {
    int64_t done = 0;
    while (done < bytes) {
      const auto count = ::pread(descriptor_, static_cast<char*>(out) + done,
                                 static_cast<size_t>(bytes - done), position + done);
      if (count < 0 && errno != EINTR) {
        return arrow::Status::IOError(std::generic_category().message(errno));
      }
      if (count == 0) {
        break;
      }
      done += std::max<ssize_t>(count, 0);
    }
    return done;
  }
  arrow::Result<int64_t> GetSize() override { return size_; }
  arrow::Status Seek(int64_t position) override {
    position_ = position;
    return arrow::Status::OK();
  }
  arrow::Result<int64_t> Tell() const override { return position_; }
  arrow::Result<int64_t> Read(int64_t bytes, void* out) override {
    ARROW_ASSIGN_OR_RAISE(const int64_t read, ReadAt(position_, bytes, out));
    position_ += read;
    return read;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t bytes) override {
    ARROW_ASSIGN_OR_RAISE(auto buffer, ReadAt(position_, bytes));
    position_ += buffer->size();
    return buffer;
  }
  arrow::Status Close() override {
    is_closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return is_closed_; }

 private:
  int descriptor_;
  int64_t size_ = 0;
  int64_t position_ = 0;
  bool is_closed_ = false;
  std::vector<std::shared_ptr<arrow::Buffer>> buffers_;
};

// A row group of a file, one column after the other.
class GroupReader {
 public:
  GroupReader(const std::string& path, const Footer& footer, int group)
      : path_(path),
        footer_(footer),
        rows_(footer.group_rows[static_cast<size_t>(group)]),
        file_(std::make_shared<KeepingFile>(path)),
        reader_(parquet::ParquetFileReader::Open(
            file_, parquet::default_reader_properties(), footer.metadata)),
        group_(reader_->RowGroup(group)) {}

  bool has(const std::string& column) const { return footer_.leaves.count(column) > 0; }

  ByteCells read_bytes(const std::string& name) {
    const auto column = open(name, parquet::Type::BYTE_ARRAY);
    auto& reader = static_cast<parquet::ByteArrayReader&>(*column);
    const auto most = column->descr()->max_definition_level();
    ByteCells cells;
    std::vector<parquet::ByteArray> values(kBatch);
    std::vector<int16_t> levels(kBatch);
    while (reader.HasNext()) {
      int64_t count = 0;
      const auto rows = reader.ReadBatch(kBatch, most > 0 ? levels.data() : nullptr, nullptr,
                                         values.data(), &count);
      if (rows == 0) {
        break;
      }
      size_t value = 0;
      for (int64_t row = 0; row < rows; ++row) {
        const bool is_null = most > 0 && levels[static_cast<size_t>(row)] < most;
        cells.is_null.push_back(is_null);
        cells.rows.push_back(is_null ? std::string_view() : keep(values[value], cells));
        value += is_null ? 0 : 1;
      }
    }
    expect_rows(name, cells.rows.size());
    file_->forget();
    return cells;
  }

  // list<int64> in the layout of any writer: an element has the highest definition level, and a
  // row begins where the repetition level is 0.
  std::vector<std::vector<int64_t>> read_shapes(const std::string& name) {
    const auto column = open(name, parquet::Type::INT64);
    auto& reader = static_cast<parquet::Int64Reader&>(*column);
    const auto most = column->descr()->max_definition_level();
    if (column->descr()->max_repetition_level() != 1) {
      fail(path_, "column '" + name + "' is no list");
    }
    std::vector<std::vector<int64_t>> shapes;
    std::vector<int64_t> values(kBatch);
    std::vector<int16_t> levels(kBatch), repeats(kBatch);
    while (reader.HasNext()) {
      int64_t count = 0;
      const auto read =
          reader.ReadBatch(kBatch, levels.data(), repeats.data(), values.data(), &count);
      if (read == 0) {
        break;
      }
      size_t value = 0;
      for (size_t i = 0; i < static_cast<size_t>(read); ++i) {
        if (repeats[i] == 0) {
          shapes.emplace_back();
        }
        if (levels[i] == most) {
          if (shapes.empty()) {
            fail(path_, "column '" + name + "' begins inside a list");
          }
          shapes.back().push_back(values[value++]);
        }
      }
    }
    expect_rows(name, shapes.size());
    file_->forget();
    return shapes;
  }

 private:
  static constexpr int64_t kBatch = 1024;

  std::shared_ptr<parquet::ColumnReader> open(const std::string& name, parquet::Type::type type) {
    const auto& leaves = footer_.leaves.at(name);
    auto column = group_->Column(leaves.front());
    if (leaves.size() != 1 || column->type() != type) {
      fail(path_, "column '" + name + "' is stored in an unknown way");
    }
    return column;
  }

  std::string_view keep(const parquet::ByteArray& value, ByteCells& cells) const {
    if (value.len == 0) {
      return {};
    }
    const auto owner = file_->owner_of(value.ptr, value.len);
    if (owner == nullptr) {  // a page that was decompressed, and is gone with the next one
      auto copy = std::shared_ptr<char[]>(new char[value.len]);
      std::memcpy(copy.get(), value.ptr, value.len);
      cells.bytes += value.len;
      const std::string_view view(copy.get(), value.len);
      cells.owners.push_back(std::move(copy));
      return view;
    }
    if (std::find(cells.owners.begin(), cells.owners.end(), owner) == cells.owners.end()) {
      cells.bytes += owner->size();
      cells.owners.push_back(owner);
    }
    return {reinterpret_cast<const char*>(value.ptr), value.len};
  }

  void expect_rows(const std::string& name, size_t rows) const {
    if (rows != static_cast<size_t>(rows_)) {
      fail(path_, "column '" + name + "' has " + std::to_string(rows) + " rows in a group of " +
                      std::to_string(rows_));
    }
  }

  const std::string& path_;
  const Footer& footer_;
  int64_t rows_;
  std::shared_ptr<KeepingFile> file_;
  std::unique_ptr<parquet::ParquetFileReader> reader_;
  std::shared_ptr<parquet::RowGroupReader> group_;
};

}  // namespace

std::shared_ptr<const RowGroup> read_row_group(const std::string& path,
                                               const Footer& footer,
                                               int group,
                                               const Columns& columns) {
  return guarded(path, [&] {
    GroupReader reader(path, footer, group);
    auto loaded = std::make_shared<RowGroup>();
    const auto add = [&](ByteCells cells) {
      loaded->bytes += cells.bytes;
      return cells;
    };
    for (const auto& name : columns.tensors) {
      loaded->tensors.push_back({add(reader.read_bytes(name + "_bytes")),
                                 reader.read_shapes(name + "_shape"),
                                 add(reader.read_bytes(name + "_dtype"))});
    }
    for (const auto& name : columns.texts) {
      loaded->texts.push_back(add(reader.read_bytes(name)));
    }
    for (const auto& name : columns.optional_texts) {
      loaded->optional_texts.push_back(reader.has(name) ? add(reader.read_bytes(name))
                                                        : ByteCells());
    }
    return std::shared_ptr<const RowGroup>(std::move(loaded));
  });
}

std::vector<std::vector<int64_t>> read_shapes(const std::string& path,
                                              const Footer& footer,
                                              int group,
                                              const std::string& tensor) {
  return guarded(path,
                 [&] { return GroupReader(path, footer, group).read_shapes(tensor + "_shape"); });
}

}  // namespace parquet_data
