// SPDX-License-Identifier: Apache-2.0
#include "encode_clips.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string_view>

#include <limbeck/group.hpp>

#include "hash.hpp"

namespace parquet_data {
namespace {

constexpr uint32_t kVae = 0;
constexpr uint32_t kTextEncoder = 1;
constexpr const char* kName = "parquet_writer";

}  // namespace

// A batch of rows on the host.
struct EncodeClips::Encoded {
  std::vector<std::string> captions;
  std::vector<int64_t> latent_sizes;  // [c, frames, h, w]
  std::vector<float> latents;
  int64_t width = 0;  // of the pixels
  int64_t height = 0;
  int64_t frames = 0;
  int64_t tokens = 0;  // with padding
  int64_t text_width = 0;
  std::vector<float> texts;
  std::vector<int64_t> lengths;  // without padding

  size_t latent_count() const { return latents.size() / captions.size(); }
  Block latent(size_t row) const { return {latent_sizes, latents.data() + row * latent_count()}; }
  Block text(size_t row) const {
    return {{lengths[row], text_width},
            texts.data() + static_cast<int64_t>(row) * tokens * text_width};
  }
};

EncodeClips::Encoded EncodeClips::encode(const lb::Event& event,
                                         const std::vector<int64_t>& rows) const {
  const auto batch = event.rows(rows);
  const auto models = event.models();
  Encoded encoded;
  encoded.captions = batch.texts("caption");
  if (encoded.captions.size() != rows.size()) {
    throw lb::Error(LB_FAILED_PRECONDITION,
                    "parquet_writer needs a training data set with the text 'caption'");
  }
  const auto pixels = batch["pixels"];
  if (pixels.dim() != 5) {
    throw lb::Error(LB_INVALID_ARGUMENT,
                    "'pixels' is " + pixels.shape() + ", expected [b, channels, frames, h, w]");
  }
  encoded.frames = pixels.size(2);
  encoded.height = pixels.size(3);
  encoded.width = pixels.size(4);

  lb::Batch clips;
  clips.set("pixels", pixels);
  const auto latents = models.run(kVae, clips, LB_RUN_NO_GRAD)["raw_latents"];
  encoded.latent_sizes = latents.sizes();
  encoded.latent_sizes.erase(encoded.latent_sizes.begin());
  encoded.latents = latents.to_vector<float>();

  lb::Batch prompts;
  prompts.set("prompt", encoded.captions);
  const auto text = models.run(kTextEncoder, prompts, LB_RUN_NO_GRAD);
  const auto context = text["context"];
  encoded.tokens = context.size(1);
  encoded.text_width = context.size(2);
  encoded.texts = context.to_vector<float>();
  encoded.lengths.assign(rows.size(), encoded.tokens);
  if (const auto mask = text.find("context_mask"); mask.defined()) {
    const auto counts = mask.to(LB_F32).sum({1}).to_vector<double>();
    for (size_t row = 0; row < rows.size(); ++row) {
      encoded.lengths[row] = std::max<int64_t>(1, static_cast<int64_t>(counts[row]));
    }
  }
  return encoded;
}

std::string EncodeClips::fingerprint(const lb::Event& event, int64_t rows) const {
  constexpr int64_t kProbes = 16;
  std::vector<int64_t> probes;
  for (int64_t i = 0; i < std::min(kProbes, rows); ++i) {
    probes.push_back(rows <= kProbes ? i : i * (rows - 1) / (kProbes - 1));
  }
  const auto encoded = encode(event, probes);
  Hash hash;
  for (const int64_t number : {rows, options_.samples_per_file, options_.samples_per_row_group,
                               static_cast<int64_t>(1000 * options_.fps)}) {
    hash.add(number);
  }
  hash.add(options_.compression);
  for (const auto& caption : encoded.captions) {
    hash.add(caption);
  }
  for (const auto size : encoded.latent_sizes) {
    hash.add(size);
  }
  hash.add(encoded.latents);
  hash.add(encoded.texts);
  return hash.text();
}

void EncodeClips::write(const lb::Event& event,
                        int64_t rows,
                        const std::string& fingerprint) const {
  SampleWriter writer(options_.data_path,
                      {options_.samples_per_file, options_.samples_per_row_group,
                       options_.compression == "zstd", fingerprint});
  const auto digits = std::to_string(rows).size();
  for (int64_t begin = 0; begin < rows; begin += options_.batch_size) {
    lb::poll_stop();
    std::vector<int64_t> indices(static_cast<size_t>(std::min(options_.batch_size, rows - begin)));
    std::iota(indices.begin(), indices.end(), begin);
    const auto encoded = encode(event, indices);
    for (size_t i = 0; i < indices.size(); ++i) {
      VideoRow row;
      row.id = std::to_string(indices[i]);
      row.id.insert(0, digits - row.id.size(), '0');
      row.id.insert(0, "clip_");
      row.file_name = row.id;
      row.latent = encoded.latent(i);
      row.text = encoded.text(i);
      row.caption = encoded.captions[i];
      row.width = encoded.width;
      row.height = encoded.height;
      row.num_frames = encoded.latent_sizes.at(1);
      row.duration_sec = static_cast<double>(encoded.frames) / options_.fps;
      row.fps = options_.fps;
      writer.add(row);
    }
    lb::progress("encoding clips", begin + static_cast<int64_t>(indices.size()), rows);
  }
  writer.finish();
}

void EncodeClips::event(const lb::Event& event) {
  if (lb::Group(LB_WORLD).size() > 1) {
    throw lb::Error(LB_UNIMPLEMENTED, "parquet_writer runs in one process; encode the data first");
  }
  const auto rows = event.length();
  if (rows < 1) {
    throw lb::Error(LB_FAILED_PRECONDITION, "parquet_writer needs a training data set with rows");
  }
  const auto mark = fingerprint(event, rows);
  const auto stored = find_stored(options_.data_path, mark);
  if (stored.foreign.empty() && stored.rows == rows) {
    lb::log(LB_INFO, kName,
            "'" + options_.data_path + "' has these " + std::to_string(rows) + " samples already");
    return;
  }
  if (!stored.foreign.empty()) {
    if (!options_.overwrite) {
      throw lb::Error(LB_FAILED_PRECONDITION,
                      "'" + options_.data_path + "' holds other data ('" + stored.foreign.front() +
                          "'); choose another data_path or set overwrite = true");
    }
    remove_stored(options_.data_path);
    const auto left = find_stored(options_.data_path, mark).foreign;
    if (!left.empty()) {
      throw lb::Error(LB_FAILED_PRECONDITION, "'" + left.front() +
                                                  "' was not made by parquet_writer and is not "
                                                  "removed; choose another data_path");
    }
  }
  write(event, rows, mark);
  lb::log(LB_INFO, kName,
          std::to_string(rows) + " samples written to '" + options_.data_path + "'");
}

}  // namespace parquet_data
