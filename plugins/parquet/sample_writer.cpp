// SPDX-License-Identifier: Apache-2.0
#include "sample_writer.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/writer.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>

#include <limbeck/error.hpp>

namespace parquet_data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFingerprintKey = "limbeck.fingerprint";

[[noreturn]] void fail_writing(const std::string& path, const std::string& reason) {
  throw lb::Error(LB_UNAVAILABLE, "cannot write '" + path + "': " + reason);
}

void check_written(const arrow::Status& status, const std::string& path) {
  if (!status.ok()) {
    fail_writing(path, status.ToString());
  }
}

template <class T>
T written_value(arrow::Result<T> result, const std::string& path) {
  check_written(result.status(), path);
  return std::move(result).ValueUnsafe();
}

std::shared_ptr<arrow::Schema> schema() {
  arrow::FieldVector fields{arrow::field("id", arrow::utf8())};
  for (const std::string name : {"vae_latent", "text_embedding"}) {
    fields.push_back(arrow::field(name + "_bytes", arrow::binary()));
    fields.push_back(arrow::field(name + "_shape", arrow::list(arrow::int64())));
    fields.push_back(arrow::field(name + "_dtype", arrow::utf8()));
  }
  for (const char* name : {"file_name", "caption", "media_type"}) {
    fields.push_back(arrow::field(name, arrow::utf8()));
  }
  for (const char* name : {"width", "height", "num_frames"}) {
    fields.push_back(arrow::field(name, arrow::int64()));
  }
  for (const char* name : {"duration_sec", "fps"}) {
    fields.push_back(arrow::field(name, arrow::float64()));
  }
  return arrow::schema(std::move(fields));
}

std::shared_ptr<parquet::WriterProperties> properties(bool is_compressed) {
  parquet::WriterProperties::Builder builder;
  builder.compression(is_compressed ? parquet::Compression::ZSTD
                                    : parquet::Compression::UNCOMPRESSED);
  // Tensors never repeat, and a minimum of bytes helps nobody.
  for (const char* column : {"vae_latent_bytes", "text_embedding_bytes"}) {
    builder.disable_dictionary(column);
    builder.disable_statistics(column);
  }
  return builder.build();
}

fs::path folder_of_files(const std::string& folder) { return fs::path(folder) / "worker_0"; }

bool is_chunk(const fs::path& path) {
  return path.filename().string().starts_with("data_chunk_") && path.extension() == ".parquet";
}

}  // namespace

class SampleWriter::OpenFile {
  // The three columns of a tensor.
  struct Triple {
    arrow::BinaryBuilder bytes;
    std::shared_ptr<arrow::Int64Builder> sizes = std::make_shared<arrow::Int64Builder>();
    arrow::ListBuilder shape{arrow::default_memory_pool(), sizes};
    arrow::StringBuilder dtype;

    arrow::Status add(const Block& block) {
      int64_t count = 1;
      for (const auto size : block.sizes) {
        count *= size;
      }
      const auto length = count * static_cast<int64_t>(sizeof(float));
      if (length > arrow::kBinaryMemoryLimit) {
        return arrow::Status::Invalid("a tensor of ", length, " bytes is too large for a column");
      }
      ARROW_RETURN_NOT_OK(
          bytes.Append(reinterpret_cast<const uint8_t*>(block.data), static_cast<int32_t>(length)));
      ARROW_RETURN_NOT_OK(shape.Append());
      ARROW_RETURN_NOT_OK(sizes->AppendValues(block.sizes));
      return dtype.Append("float32");
    }
  };

 public:
  OpenFile(std::string path, const Layout& layout)
      : path_(std::move(path)), temporary_(path_ + ".tmp"), layout_(layout), schema_(schema()) {
    sink_ = written_value(arrow::io::FileOutputStream::Open(temporary_), temporary_);
    writer_ =
        written_value(parquet::arrow::FileWriter::Open(*schema_, arrow::default_memory_pool(),
                                                       sink_, properties(layout.is_compressed)),
                      temporary_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (!is_complete_) {
      writer_.reset();
      sink_.reset();
      std::error_code ignored;
      fs::remove(temporary_, ignored);
    }
  }

  int64_t rows() const { return rows_; }

  void add(const VideoRow& row) {
    check_written(append(row), temporary_);
    ++rows_;
    ++pending_;
    if (pending_ == layout_.rows_per_group) {
      write_group();
    }
  }

  void finish() {
    write_group();
    check_written(writer_->AddKeyValueMetadata(
                      arrow::key_value_metadata({kFingerprintKey}, {layout_.fingerprint})),
                  temporary_);
    check_written(writer_->Close(), temporary_);
    check_written(sink_->Close(), temporary_);
    std::error_code fault;
    fs::rename(temporary_, path_, fault);
    if (fault) {
      fail_writing(path_, fault.message());
    }
    is_complete_ = true;
  }

 private:
  arrow::Status append(const VideoRow& row) {
    ARROW_RETURN_NOT_OK(id_.Append(row.id));
    ARROW_RETURN_NOT_OK(latent_.add(row.latent));
    ARROW_RETURN_NOT_OK(text_.add(row.text));
    ARROW_RETURN_NOT_OK(file_name_.Append(row.file_name));
    ARROW_RETURN_NOT_OK(caption_.Append(row.caption));
    ARROW_RETURN_NOT_OK(media_type_.Append(row.media_type));
    ARROW_RETURN_NOT_OK(width_.Append(row.width));
    ARROW_RETURN_NOT_OK(height_.Append(row.height));
    ARROW_RETURN_NOT_OK(num_frames_.Append(row.num_frames));
    ARROW_RETURN_NOT_OK(duration_.Append(row.duration_sec));
    return fps_.Append(row.fps);
  }

  void write_group() {
    if (pending_ == 0) {
      return;
    }
    arrow::ArrayVector columns;
    for (arrow::ArrayBuilder* builder : std::initializer_list<arrow::ArrayBuilder*>{
             &id_, &latent_.bytes, &latent_.shape, &latent_.dtype, &text_.bytes, &text_.shape,
             &text_.dtype, &file_name_, &caption_, &media_type_, &width_, &height_, &num_frames_,
             &duration_, &fps_}) {
      columns.push_back(written_value(builder->Finish(), temporary_));
    }
    check_written(writer_->WriteTable(*arrow::Table::Make(schema_, columns), pending_), temporary_);
    pending_ = 0;
  }

  std::string path_;
  std::string temporary_;
  Layout layout_;
  std::shared_ptr<arrow::Schema> schema_;
  std::shared_ptr<arrow::io::FileOutputStream> sink_;
  std::unique_ptr<parquet::arrow::FileWriter> writer_;
  int64_t rows_ = 0;
  int64_t pending_ = 0;
  bool is_complete_ = false;
  arrow::StringBuilder id_;
  Triple latent_;
  Triple text_;
  arrow::StringBuilder file_name_, caption_, media_type_;
  arrow::Int64Builder width_, height_, num_frames_;
  arrow::DoubleBuilder duration_, fps_;
};

SampleWriter::SampleWriter(std::string folder, Layout layout)
    : folder_(std::move(folder)), layout_(std::move(layout)) {
  const auto files = folder_of_files(folder_);
  std::error_code fault;
  fs::create_directories(files, fault);
  if (fault) {
    fail_writing(files.string(), fault.message());
  }
}

SampleWriter::~SampleWriter() = default;

void SampleWriter::add(const VideoRow& row) {
  try {
    if (open_ == nullptr) {
      const auto name = "data_chunk_" + std::to_string(files_) + ".parquet";
      open_ = std::make_unique<OpenFile>((folder_of_files(folder_) / name).string(), layout_);
      ++files_;
    }
    open_->add(row);
  } catch (const parquet::ParquetException& fault) {
    fail_writing(folder_, fault.what());
  }
  if (open_->rows() == layout_.rows_per_file) {
    finish();
  }
}

void SampleWriter::finish() {
  if (open_ == nullptr) {
    return;
  }
  try {
    open_->finish();
  } catch (const parquet::ParquetException& fault) {
    fail_writing(folder_, fault.what());
  }
  open_.reset();
}

Stored find_stored(const std::string& folder, const std::string& fingerprint) {
  Stored stored;
  std::error_code fault;
  fs::recursive_directory_iterator entries(folder, fault);
  for (; !fault && entries != fs::recursive_directory_iterator(); entries.increment(fault)) {
    const auto path = entries->path();
    if (path.extension() != ".parquet") {
      continue;
    }
    try {
      const auto metadata = parquet::ParquetFileReader::OpenFile(path.string())->metadata();
      const auto pairs = metadata->key_value_metadata();
      const auto found = pairs == nullptr ? -1 : pairs->FindKey(kFingerprintKey);
      if (found >= 0 && pairs->value(found) == fingerprint) {
        stored.rows += metadata->num_rows();
        continue;
      }
    } catch (const parquet::ParquetException&) {
      // Listed like any file that is not ours: whoever made it must decide.
    }
    stored.foreign.push_back(path.string());
  }
  if (fault && fault != std::errc::no_such_file_or_directory) {
    throw lb::Error(LB_UNAVAILABLE, "cannot list '" + folder + "': " + fault.message());
  }
  std::sort(stored.foreign.begin(), stored.foreign.end());
  return stored;
}

void remove_stored(const std::string& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_of_files(folder), ignored)) {
    if (is_chunk(entry.path())) {
      fs::remove(entry.path(), ignored);
    }
  }
}

}  // namespace parquet_data
