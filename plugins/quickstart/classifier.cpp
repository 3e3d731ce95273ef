// SPDX-License-Identifier: Apache-2.0
#include "quickstart/classifier.hpp"

#include <vector>

namespace quickstart {
namespace {

constexpr uint32_t kTrained = 0;

// Frame frames[i] of clip i: [b, c, F, h, w] -> [b, c, 1, h, w].
lb::Tensor pick_frames(const lb::Tensor& clips, std::vector<int64_t> frames) {
  const auto sizes = clips.sizes();
  for (size_t i = 0; i < frames.size(); ++i) {
    frames[i] += static_cast<int64_t>(i) * sizes[2];
  }
  const auto index = lb::tensor(frames, {sizes[0]});
  return clips.permute({0, 2, 1, 3, 4})
      .reshape({sizes[0] * sizes[2], sizes[1], 1, sizes[3], sizes[4]})
      .index_select(0, index);
}

}  // namespace

lb::Tensor Classifier::loss(const lb::Step& step) {
  const auto clips = step.batch()["pixels"];
  const auto labels = step.batch()["label"];
  if (clips.dim() != 5) {
    throw lb::Error(LB_INVALID_ARGUMENT,
                    "'pixels' is " + clips.shape() + ", expected [b, channels, frames, h, w]");
  }
  const auto b = clips.size(0);
  auto pixels = pick_frames(
      clips, step.integers(LB_NOISE, "classifier.frame", 0, clips.size(2), static_cast<size_t>(b)));
  pixels = pixels + options_.noise * step.normal("classifier.noise", pixels.sizes());

  lb::Batch in;
  in.set("pixels", pixels);
  const auto logits = step.models().run(kTrained, in)["frame_logits"].reshape({b, -1});
  const auto loss = lb::cross_entropy(logits, labels, options_.label_smoothing);
  step.log("loss", loss.detach());
  step.log("accuracy", logits.detach().argmax(1).eq(labels).to(LB_F32).mean());
  return loss;
}

}  // namespace quickstart
