// SPDX-License-Identifier: Apache-2.0
#include "quickstart/digit_clips.hpp"

namespace quickstart {

DigitClips::DigitClips(const Options& options, const lb_source&)
    : clips_(read_digits(options.file),
             options.split == "train" ? Split::kTrain : Split::kHeldOut) {}

std::vector<lb::Field> DigitClips::fields() {
  return {
      {"pixels", {1, kFrames, kHeight, kWidth}}, lb::Field::text("caption"), {"label", {}, LB_I64}};
}

void DigitClips::read(int64_t index, lb::Batch& sample) {
  std::vector<float> pixels(kClipPixels);
  clips_.draw(index, pixels.data());
  const auto label = clips_.label(index);
  sample.set("pixels", lb::tensor(pixels, {1, kFrames, kHeight, kWidth}, LB_CPU));
  sample.set("caption", prompt_of(label));
  sample.set("label", lb::tensor_from(&label, LB_I64, {}, LB_CPU));
}

}  // namespace quickstart
