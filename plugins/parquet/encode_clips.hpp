// SPDX-License-Identifier: Apache-2.0
// The callback "parquet_writer": encodes the training data once, before the first step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <limbeck/callback.hpp>

#include "sample_writer.hpp"

namespace parquet_data {

// Takes `pixels` [b, p, F, h, w] and the text `caption` of every row of the training set in order,
// and writes the VAE's raw latents and the text embeddings without their padding. Does nothing if
// the folder has the same samples already: known by a fingerprint of the settings, the number of
// rows, and what a few rows are encoded to.
class EncodeClips : public lb::Callback {
 public:
  static constexpr lb_role needs[] = {
      {"vae", "Encodes clips.", "limbeck.vae/1", lb::kFrozen, 0},
      {"text_encoder", "Encodes captions.", "limbeck.text-encoder/1", lb::kFrozen, 0}};
  static constexpr uint64_t events = uint64_t{1} << LB_ON_START;
  static constexpr const char* reads[] = {"pixels", "caption"};

  struct Options {
    std::string data_path;
    int64_t batch_size = 64;
    int64_t samples_per_file = 4096;
    int64_t samples_per_row_group = 64;
    std::string compression = "none";
    double fps = 8.0;
    bool overwrite = false;

    template <class V>
    void visit(V& v) {
      v.required("data_path", data_path,
                 "Folder to write to, relative to the current directory; created if needed.");
      v("batch_size", batch_size, "Clips that are encoded together.", "[1, inf)");
      v("samples_per_file", samples_per_file, "Rows of a file.", "[1, inf)");
      v("samples_per_row_group", samples_per_row_group,
        "Rows that are read together: the smaller, the better shuffling mixes.", "[1, inf)");
      v.choice("compression", compression,
               "Latents hardly shrink, and reading zstd is several times slower.",
               {"none", "zstd"});
      v("fps", fps, "Frames a second of the clips, for the columns fps and duration_sec.",
        "(0, inf)");
      v("overwrite", overwrite, "Replace other data in the folder instead of stopping.");
    }
  };

  explicit EncodeClips(const Options& options) : options_(options) {}

  void event(const lb::Event& event) override;

 private:
  struct Encoded;

  Encoded encode(const lb::Event& event, const std::vector<int64_t>& rows) const;
  std::string fingerprint(const lb::Event& event, int64_t rows) const;
  void write(const lb::Event& event, int64_t rows, const std::string& fingerprint) const;

  Options options_;
};

}  // namespace parquet_data
