// SPDX-License-Identifier: Apache-2.0
// Writes text-to-video samples in the columns that FastVideo's trainer reads. Arrow stays behind
// this interface: its headers are slow to compile.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace parquet_data {

// Float values, row by row; lent for the call.
struct Block {
  std::vector<int64_t> sizes;
  const float* data = nullptr;
};

struct VideoRow {
  std::string id;
  Block latent;  // [channels, frames, height, width], not normalised
  Block text;    // [tokens, width], without padding
  std::string file_name;
  std::string caption;
  std::string media_type = "video";
  int64_t width = 0;       // pixels
  int64_t height = 0;      // pixels
  int64_t num_frames = 0;  // latent frames
  double duration_sec = 0;
  double fps = 0;
};

struct Layout {
  int64_t rows_per_file = 1024;
  int64_t rows_per_group = 64;
  bool is_compressed = false;  // with zstd
  std::string fingerprint;     // kept in every file
};

// <folder>/worker_0/data_chunk_<k>.parquet with k = 0, 1, ... A file is written under another name
// and renamed when it is complete. Faults are lb::Error(LB_UNAVAILABLE) with the path and the
// reason; then, and when finish() is not called, the temporary file is removed.
class SampleWriter {
 public:
  SampleWriter(std::string folder, Layout layout);
  ~SampleWriter();
  SampleWriter(const SampleWriter&) = delete;
  SampleWriter& operator=(const SampleWriter&) = delete;

  void add(const VideoRow& row);
  void finish();

 private:
  class OpenFile;

  std::string folder_;
  Layout layout_;
  int64_t files_ = 0;
  std::unique_ptr<OpenFile> open_;
};

// What is in a folder already.
struct Stored {
  int64_t rows = 0;                  // in files with the fingerprint
  std::vector<std::string> foreign;  // files below the folder without it, or not readable
};
Stored find_stored(const std::string& folder, const std::string& fingerprint);

// Removes the files that SampleWriter makes in this folder, whatever is in them.
void remove_stored(const std::string& folder);

}  // namespace parquet_data
