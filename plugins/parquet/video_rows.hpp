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
//   vae_latent      raw_latents  [c, frames, h, w], of one shape in the whole set; with
//                                num_latent_t the first frames of it
//   text_embedding  context      [tokens, width], tokens vary
//   caption         caption      text
//   id              id           text, where there is one
// Runs are row groups. Latents are not flipped or cropped: an encoder does not give for a flipped
// or cropped video the flipped or cropped latents.
class VideoRows : public lb::Dataset {
 public:
  struct Options {
    std::string data_path;
    std::vector<std::string> data_paths;
    std::string mix = "repeat";
    std::string sample_type = "t2v";
    int64_t num_latent_t = 0;
    int64_t cache_mb = 1024;

    template <class V>
    void visit(V& v) {
      v("data_path", data_path,
        "Folder with *.parquet files at any depth, or a file, relative to the current directory. "
        "Several are separated by commas; \":3\" after one is its repeat count or weight.");
      v("data_paths", data_paths, "The same as a list; added to data_path.");
      v.choice(
          "mix", mix,
          "What a number after a path means.\n\nrepeat: its rows are in the data set as often. "
          "weight: its share of every epoch, relative to those of the other paths.",
          {"repeat", "weight"});
      v.choice("sample_type", sample_type,
               "What rows hold: video latents with text, or text alone.", {"t2v", "text_only"})
          .alias("training.data.preprocessed_data_type");
      v("num_latent_t", num_latent_t,
        "Latent frames that are trained on, the first of a sample; 0: all.\n\nSamples may then "
        "have different numbers of frames, but none fewer.",
        "[0, inf)");
      v("cache_mb", cache_mb,
        "Memory for row groups in MiB, shared by all reading threads.\n\nNo more row groups are "
        "shuffled together than fit, so that each is read once an epoch.",
        "[0, inf)");
    }
  };

  // Throws lb::Error(LB_DATA_LOSS) that names the first such row, unless `source` skips them, when
  // samples do not have one shape.
  VideoRows(const Options& options, const lb_source& source);

  int64_t length() override { return files_->rows(); }
  std::vector<lb::Field> fields() override;
  void read(int64_t index, lb::Batch& sample) override;
  std::vector<int64_t> runs() override { return files_->ends(); }
  int64_t kept_runs() override { return files_->kept_groups(); }
  std::vector<lb::MixSource> mix() override { return mix_; }
  uint64_t fingerprint() override { return fingerprint_; }
  void describe(lb::Batch& facts) override;

 private:
  // A tensor of a sample.
  struct Entry {
    std::string name;
    std::vector<int64_t> sizes;  // what most samples have; -1: varies
    int64_t frames = 0;          // kept of dimension 1; 0: all
  };

  std::vector<int64_t> common_sizes(size_t tensor) const;
  bool fits(const Entry& entry, const std::vector<int64_t>& sizes) const;
  void refuse_odd_rows(size_t tensor) const;

  std::vector<Entry> entries_;
  bool has_caption_ = false;
  bool has_id_ = false;
  std::unique_ptr<SampleFiles> files_;
  std::vector<lb::MixSource> mix_;
  uint64_t fingerprint_ = 0;
};

}  // namespace parquet_data
