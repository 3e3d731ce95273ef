// SPDX-License-Identifier: Apache-2.0
#include "quickstart/judging.hpp"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "media/file.hpp"

namespace quickstart {
namespace {

double share_equal(const std::vector<int64_t>& found, const std::vector<int64_t>& labels) {
  const auto repeat = found.size() / labels.size();
  int64_t equal = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    equal += found[i] == labels[i / repeat] ? 1 : 0;
  }
  return static_cast<double>(equal) / static_cast<double>(found.size());
}

}  // namespace

lb::Tensor clip_tensor(const Clips& clips, const std::vector<int64_t>& indices) {
  std::vector<float> pixels(indices.size() * kClipPixels);
  for (size_t i = 0; i < indices.size(); ++i) {
    clips.draw(indices[i], pixels.data() + i * kClipPixels);
  }
  return lb::tensor(pixels, {static_cast<int64_t>(indices.size()), 1, kFrames, kHeight, kWidth});
}

std::vector<int64_t> first_clips(const Clips& clips, int64_t images) {
  std::vector<int64_t> chosen;
  for (int64_t label = 0; label < kClasses; ++label) {
    int64_t taken = 0;
    for (int64_t clip = 0; clip < clips.size() && taken < images; clip += clips.per_image()) {
      if (clips.label(clip) == label) {
        chosen.push_back(clip);
        ++taken;
      }
    }
  }
  return chosen;
}

Verdict judge(const lb::Models& models,
              uint32_t role,
              const lb::Tensor& pixels,
              const std::vector<int64_t>& labels) {
  if (labels.empty() || pixels.size(0) != static_cast<int64_t>(labels.size())) {
    throw lb::Error(LB_INTERNAL,
                    std::to_string(labels.size()) + " labels for clips of shape " + pixels.shape());
  }
  lb::Batch in;
  in.set("pixels", pixels);
  const auto out = models.run(role, in, LB_RUN_NO_GRAD);
  const auto features = out["features"];
  return {share_equal(out["frame_logits"].argmax(-1).to_vector<int64_t>(), labels),
          share_equal(out["probabilities"].argmax(-1).to_vector<int64_t>(), labels),
          {features.size(0) * features.size(1), features.size(2), features.to_vector<double>()}};
}

Verdict judge(const lb::Models& models, uint32_t role, const Clips& clips) {
  std::vector<int64_t> indices(static_cast<size_t>(clips.size()));
  std::iota(indices.begin(), indices.end(), 0);
  std::vector<int64_t> labels;
  for (const auto clip : indices) {
    labels.push_back(clips.label(clip));
  }
  return judge(models, role, clip_tensor(clips, indices), labels);
}

void write_text(const std::string& folder, const std::string& name, const std::string& text) {
  const std::vector<unsigned char> bytes(text.begin(), text.end());
  media::replace_file(std::filesystem::path(folder) / name, bytes);
}

}  // namespace quickstart
