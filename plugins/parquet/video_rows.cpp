// SPDX-License-Identifier: Apache-2.0
#include "video_rows.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "hash.hpp"
#include "sources.hpp"

namespace parquet_data {
namespace {

constexpr const char* kLatents = "raw_latents";
constexpr const char* kContext = "context";
constexpr size_t kFrames = 1;  // dimension of latents
constexpr size_t kTokens = 0;  // dimension of text embeddings
constexpr int64_t kMebibyte = 1 << 20;

std::string text_of(const std::vector<int64_t>& sizes) {
  std::string text = "[";
  for (size_t i = 0; i < sizes.size(); ++i) {
    text += (i == 0 ? "" : ", ") + (sizes[i] == -1 ? std::string("*") : std::to_string(sizes[i]));
  }
  return text + "]";
}

uint64_t fingerprint_of(const FileList& list, const SampleFiles& files) {
  Hash hash;
  for (size_t i = 0; i < list.files.size(); ++i) {
    hash.add(list.files[i].name);
    hash.add(static_cast<int64_t>(files.footers()[i]->file_bytes));
    hash.add(files.end_of_files(i + 1) - files.end_of_files(i));
  }
  return hash.value();
}

std::vector<lb::MixSource> mix_of(const std::vector<Source>& sources,
                                  const FileList& list,
                                  const SampleFiles& files) {
  std::vector<lb::MixSource> mix;
  for (size_t i = 0; i < list.ends.size(); ++i) {
    mix.push_back({sources[i].path, files.end_of_files(list.ends[i]), sources[i].factor});
  }
  return mix;
}

// What is left of values [c, frames, ...] when the first `frames` frames are kept.
lb::Tensor first_frames(const Values& values, int64_t frames) {
  auto sizes = values.sizes;
  const int64_t all = sizes[kFrames];
  const int64_t channels = sizes[0];
  size_t frame_bytes = sizeof(float);
  for (size_t i = kFrames + 1; i < sizes.size(); ++i) {
    frame_bytes *= static_cast<size_t>(sizes[i]);
  }
  sizes[kFrames] = frames;
  const auto kept_bytes = static_cast<size_t>(frames) * frame_bytes;
  std::vector<std::byte> kept(static_cast<size_t>(channels) * kept_bytes);
  for (size_t c = 0; c < static_cast<size_t>(channels); ++c) {
    std::copy_n(values.data + c * static_cast<size_t>(all) * frame_bytes, kept_bytes,
                kept.begin() + static_cast<std::ptrdiff_t>(c * kept_bytes));
  }
  return lb::tensor_from(kept.data(), LB_F32, sizes, LB_CPU);
}

}  // namespace

VideoRows::VideoRows(const Options& options, const lb_source& source) {
  auto paths = options.data_paths;
  if (!options.data_path.empty()) {
    paths.insert(paths.begin(), options.data_path);
  }
  Columns columns;
  const auto add = [&](const char* column, const char* entry, int64_t frames) {
    // The mask that the host adds stands for the entry as well.
    if (lb::is_wanted(source, entry) || lb::is_wanted(source, std::string(entry) + "_mask")) {
      columns.tensors.emplace_back(column);
      entries_.push_back({entry, {}, frames});
    }
  };
  if (options.sample_type == "t2v") {
    add("vae_latent", kLatents, options.num_latent_t);
  }
  add("text_embedding", kContext, 0);
  has_caption_ = lb::is_wanted(source, "caption");
  has_id_ = lb::is_wanted(source, "id");
  if (has_caption_) {
    columns.texts.emplace_back("caption");
  }
  if (has_id_) {
    columns.optional_texts.emplace_back("id");
  }

  const auto mix = options.mix == "weight" ? Mix::kWeight : Mix::kRepeat;
  const auto sources = parse_sources(paths, mix);
  const auto list = list_files(sources, mix);
  files_ =
      std::make_unique<SampleFiles>(list.paths(), std::move(columns), options.cache_mb * kMebibyte);
  mix_ = mix_of(sources, list, *files_);
  fingerprint_ = fingerprint_of(list, *files_);

  for (size_t i = 0; i < entries_.size(); ++i) {
    entries_[i].sizes = common_sizes(i);
    if ((source.flags & LB_SOURCE_SKIPS) == 0) {
      refuse_odd_rows(i);
    }
  }
}

// The shape that most samples can be given, with the most samples of the first row to decide ties.
std::vector<int64_t> VideoRows::common_sizes(size_t tensor) const {
  const auto& entry = entries_[tensor];
  const size_t dimensions = entry.name == kContext ? 2 : 4;
  std::map<std::vector<int64_t>, ShapeCount> counts;
  for (const auto& [stored, count] : files_->shapes(tensor)) {
    auto sizes = stored;
    if (sizes.size() != dimensions) {
      continue;
    }
    if (entry.name == kContext) {
      sizes[kTokens] = -1;
    } else if (entry.frames > 0 && sizes[kFrames] >= entry.frames) {
      sizes[kFrames] = entry.frames;
    }
    auto& all = counts.try_emplace(std::move(sizes), ShapeCount{0, count.first_row}).first->second;
    all.rows += count.rows;
    all.first_row = std::min(all.first_row, count.first_row);
  }
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
        return std::pair(a.second.rows, -a.second.first_row) <
               std::pair(b.second.rows, -b.second.first_row);
      });
  if (most == counts.end()) {
    throw lb::Error(LB_DATA_LOSS, files_->place_of(0) + ": '" + entry.name +
                                      "' has no sample with " + std::to_string(dimensions) +
                                      " dimensions");
  }
  auto sizes = most->first;
  if (entry.frames > 0) {
    sizes[kFrames] = entry.frames;
  }
  return sizes;
}

bool VideoRows::fits(const Entry& entry, const std::vector<int64_t>& sizes) const {
  if (sizes.size() != entry.sizes.size()) {
    return false;
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    const bool is_cut = entry.frames > 0 && i == kFrames && sizes[i] >= entry.frames;
    if (entry.sizes[i] != -1 && entry.sizes[i] != sizes[i] && !is_cut) {
      return false;
    }
  }
  return true;
}

void VideoRows::refuse_odd_rows(size_t tensor) const {
  const auto& entry = entries_[tensor];
  int64_t odd = 0;
  int64_t first = files_->rows();
  const std::vector<int64_t>* first_sizes = nullptr;
  std::set<int64_t> frames;
  bool do_only_frames_differ = entry.name == kLatents;
  for (const auto& [sizes, count] : files_->shapes(tensor)) {
    if (!fits(entry, sizes)) {
      odd += count.rows;
      if (count.first_row < first) {
        first = count.first_row;
        first_sizes = &sizes;
      }
    }
    auto same = sizes;
    if (same.size() == entry.sizes.size()) {
      frames.insert(same[kFrames]);
      same[kFrames] = entry.sizes[kFrames];
    }
    do_only_frames_differ = do_only_frames_differ && same == entry.sizes;
  }
  if (odd == 0) {
    return;
  }
  std::string text = std::to_string(odd) + " of " + std::to_string(files_->rows()) +
                     " samples do not fit the others: " + entry.name + " is " +
                     text_of(*first_sizes) + " in " + files_->place_of(first) + ", expected " +
                     text_of(entry.sizes);
  if (do_only_frames_differ) {
    text += "; num_latent_t = " + std::to_string(*frames.begin()) +
            " would cut all of them to the first frames";
  } else {
    text += "; samples of one data set have one shape";
  }
  throw lb::Error(LB_DATA_LOSS, text);
}

std::vector<lb::Field> VideoRows::fields() {
  std::vector<lb::Field> fields;
  for (const auto& entry : entries_) {
    fields.push_back({entry.name, entry.sizes});
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
  const auto row = files_->read(index);
  for (size_t i = 0; i < entries_.size(); ++i) {
    const auto& entry = entries_[i];
    const auto& values = row.tensors[i];
    if (!fits(entry, values.sizes)) {
      throw lb::Error(LB_DATA_LOSS, files_->place_of(index) + ": " + entry.name + " is " +
                                        text_of(values.sizes) + ", expected " +
                                        text_of(entry.sizes) +
                                        "; samples of one data set have one shape");
    }
    sample.set(entry.name, entry.frames > 0 && values.sizes[kFrames] != entry.frames
                               ? first_frames(values, entry.frames)
                               : lb::tensor_from(values.data, LB_F32, values.sizes, LB_CPU));
  }
  if (has_caption_) {
    sample.set("caption", row.texts[0]);
  }
  if (has_id_ && row.optional_texts[0].has_value()) {
    sample.set("id", *row.optional_texts[0]);
  }
}

void VideoRows::describe(lb::Batch& facts) {
  std::set<const Footer*> distinct;
  std::set<std::string> compressions;
  uint64_t bytes = 0;
  for (const auto& footer : files_->footers()) {
    if (distinct.insert(footer.get()).second) {
      bytes += footer->file_bytes;
      compressions.insert(footer->compression);
    }
  }
  facts.set("files", static_cast<int64_t>(distinct.size()))
      .set("file_bytes", static_cast<int64_t>(bytes))
      .set("row_groups", static_cast<int64_t>(files_->ends().size()))
      .set("compression", std::vector<std::string>(compressions.begin(), compressions.end()));
  for (size_t i = 0; i < entries_.size(); ++i) {
    std::vector<std::string> shapes;
    for (const auto& [sizes, count] : files_->shapes(i)) {
      shapes.push_back(text_of(sizes) + " in " + std::to_string(count.rows) + " rows");
    }
    facts.set(entries_[i].name + ".shapes", shapes);
  }
  std::vector<std::string> mix;
  for (const auto& source : mix_) {
    mix.push_back(source.name + " with weight " + std::to_string(source.weight));
  }
  if (!mix.empty()) {
    facts.set("mix", mix);
  }
}

}  // namespace parquet_data
