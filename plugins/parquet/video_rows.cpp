// SPDX-License-Identifier: Apache-2.0
#include "video_rows.hpp"

#include <utility>

#include "sources.hpp"

namespace parquet_data {
namespace {

constexpr const char* kLatents = "raw_latents";
constexpr const char* kContext = "context";

std::string text_of(const std::vector<int64_t>& sizes) {
  std::string text = "[";
  for (size_t i = 0; i < sizes.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  }
  return text + "]";
}

// Latents have one shape; of the text, only the number of tokens varies.
bool is_alike(const std::string& entry,
              const std::vector<int64_t>& sizes,
              const std::vector<int64_t>& first) {
  return entry == kContext ? sizes.size() == 2 && sizes[1] == first[1] : sizes == first;
}

}  // namespace

VideoRows::VideoRows(const Options& options, const lb_source& source) {
  auto paths = options.data_paths;
  if (!options.data_path.empty()) {
    paths.insert(paths.begin(), options.data_path);
  }
  Columns columns;
  const auto add = [&](const char* column, const char* entry) {
    // The mask that the host adds stands for the entry as well.
    if (lb::is_wanted(source, entry) || lb::is_wanted(source, std::string(entry) + "_mask")) {
      columns.tensors.emplace_back(column);
      entries_.emplace_back(entry);
    }
  };
  if (options.sample_type == "t2v") {
    add("vae_latent", kLatents);
  }
  add("text_embedding", kContext);
  has_caption_ = lb::is_wanted(source, "caption");
  has_id_ = lb::is_wanted(source, "id");
  if (has_caption_) {
    columns.texts.emplace_back("caption");
  }
  if (has_id_) {
    columns.optional_texts.emplace_back("id");
  }
  constexpr int64_t kMebibyte = 1 << 20;
  files_ = std::make_unique<SampleFiles>(list_files(parse_sources(paths)), std::move(columns),
                                         options.cache_mb * kMebibyte);
}

std::vector<lb::Field> VideoRows::fields() {
  shapes_.clear();
  std::vector<lb::Field> fields;
  for (size_t i = 0; i < entries_.size(); ++i) {
    auto sizes = files_->first_sizes(i);
    const size_t dimensions = entries_[i] == kContext ? 2 : 4;
    if (sizes.size() != dimensions) {
      throw lb::Error(LB_DATA_LOSS, "row 0 of the data set: '" + entries_[i] + "' is " +
                                        text_of(sizes) + ", expected " +
                                        std::to_string(dimensions) + " dimensions");
    }
    shapes_.push_back(sizes);
    if (entries_[i] == kContext) {
      sizes[0] = -1;
    }
    fields.push_back({entries_[i], std::move(sizes)});
  }
  if (has_caption_) {
    fields.push_back(lb::Field::text("caption"));
  }
  if (has_id_) {
    fields.push_back(lb::Field::text("id", LB_FIELD_OPTIONAL));
  }
  return fields;
}

void VideoRows::read(int64_t index, lb::Batch& sample) {
  if (shapes_.size() != entries_.size()) {
    fields();
  }
  const auto row = files_->read(index);
  for (size_t i = 0; i < entries_.size(); ++i) {
    const auto& values = row.tensors[i];
    if (!is_alike(entries_[i], values.sizes, shapes_[i])) {
      throw lb::Error(LB_DATA_LOSS, "row " + std::to_string(index) + " of the data set: '" +
                                        entries_[i] + "' is " + text_of(values.sizes) +
                                        ", but row 0 has " + text_of(shapes_[i]) +
                                        "; samples of one set have equal shapes");
    }
    sample.set(entries_[i], lb::tensor_from(values.data, LB_F32, values.sizes, LB_CPU));
  }
  if (has_caption_) {
    sample.set("caption", row.texts[0]);
  }
  if (has_id_ && row.optional_texts[0].has_value()) {
    sample.set("id", *row.optional_texts[0]);
  }
}

}  // namespace parquet_data
