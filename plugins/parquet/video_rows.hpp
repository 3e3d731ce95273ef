// SPDX-License-Identifier: Apache-2.0
// The data set "parquet": preprocessed text-to-video samples.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <limbeck/dataset.hpp>

#include "sample_files.hpp"

namespace parquet_data {

// Columns of a file -> entries of a sample, f32 on the CPU:
//   vae_latent      raw_latents  [c, frames, h, w], of one shape in the whole set
//   text_embedding  context      [tokens, width], tokens vary
//   caption         caption      text
//   id              id           text, where there is one
// Runs are row groups.
class VideoRows : public lb::Dataset {
 public:
  struct Options {
    std::string data_path;
    std::vector<std::string> data_paths;
    std::string sample_type = "t2v";
    int64_t cache_mb = 1024;

    template <class V>
    void visit(V& v) {
      v("data_path", data_path,
        "Folder with *.parquet files at any depth, or a file, relative to the current directory. "
        "Several are separated by commas; \":3\" after one repeats its rows three times.");
      v("data_paths", data_paths, "The same as a list; added to data_path.");
      v.choice("sample_type", sample_type,
               "What rows hold: video latents with text, or text alone.", {"t2v", "text_only"});
      v("cache_mb", cache_mb,
        "Memory for decoded row groups in MiB, of each reading thread.\n\nWith shuffling, a row "
        "group is decoded once an epoch if those of one shuffle window fit.",
        "[0, inf)");
    }
  };

  VideoRows(const Options& options, const lb_source& source);

  int64_t length() override { return files_->rows(); }
  std::vector<lb::Field> fields() override;
  void read(int64_t index, lb::Batch& sample) override;
  std::vector<int64_t> runs() override { return files_->ends(); }

 private:
  std::vector<std::string> entries_;  // one for each tensor of a sample
  bool has_caption_ = false;
  bool has_id_ = false;
  std::unique_ptr<SampleFiles> files_;
  std::vector<std::vector<int64_t>> shapes_;  // of row 0, one for each tensor; empty: not asked yet
};

}  // namespace parquet_data
