// SPDX-License-Identifier: Apache-2.0
#include "quickstart/digit_judge.hpp"

#include <string>
#include <vector>

#include "quickstart/digits.hpp"

namespace quickstart {

DigitJudge::Layer DigitJudge::layer(const lb::Builder& builder, const char* name, lb::Ints sizes) {
  const bool is_matrix = sizes.size() == 2;
  return {
      builder.param(LB_ROOT, std::string(name) + ".weight", sizes, "kaiming_uniform",
                    is_matrix ? uint32_t{LB_PARAM_LINEAR} : 0U),
      builder.param(LB_ROOT, std::string(name) + ".bias", {sizes[0]}, "zeros", LB_PARAM_NO_DECAY)};
}

DigitJudge::DigitJudge(const Options& options, const lb::Builder& builder) : options_(options) {
  if (options.height % 2 != 0 || options.width % 2 != 0) {
    throw lb::Error(LB_INVALID_ARGUMENT, "height " + std::to_string(options.height) +
                                             " and width " + std::to_string(options.width) +
                                             " must be even");
  }
  conv1_ = layer(builder, "conv1", {16, 1, 3, 3});
  conv2_ = layer(builder, "conv2", {32, 16, 3, 3});
  hidden_ =
      layer(builder, "hidden", {kJudgeFeatures, 32 * (options.height / 2) * (options.width / 2)});
  logits_ = layer(builder, "logits", {kClasses, kJudgeFeatures});
}

void DigitJudge::describe(lb::Batch& facts) {
  facts.set("pixel_channels", 1);
  facts.set("height", options_.height);
  facts.set("width", options_.width);
  facts.set("classes", kClasses);
}

void DigitJudge::forward(const lb::Units& units, const lb::Batch& in, lb::Batch& out) {
  const auto pixels = in["pixels"];
  const auto sizes = pixels.sizes();
  if (sizes.size() != 5 || sizes[1] != 1 || sizes[3] != options_.height ||
      sizes[4] != options_.width) {
    throw lb::Error(LB_INVALID_ARGUMENT, "'pixels' is " + pixels.shape() +
                                             ", expected [b, 1, frames, " +
                                             std::to_string(options_.height) + ", " +
                                             std::to_string(options_.width) + "]");
  }
  const auto b = sizes[0];
  const auto frames = sizes[2];
  const auto flat = pixels.reshape({b * frames, 1, sizes[3], sizes[4]}).to(units.dtype());
  const auto results = units.run(
      LB_ROOT, {flat}, 2,
      [conv1 = conv1_, conv2 = conv2_, hidden = hidden_,
       logits = logits_](const lb::Call& call) -> std::vector<lb::Tensor> {
        auto x = lb::relu(lb::conv2d(call.in(0), call.param(conv1.weight), call.param(conv1.bias),
                                     {1, 1}, {1, 1}));
        x = lb::relu(
            lb::conv2d(x, call.param(conv2.weight), call.param(conv2.bias), {2, 2}, {1, 1}));
        const auto features = lb::relu(call.linear(hidden.weight, hidden.bias, x.flatten(1)));
        return {features, call.linear(logits.weight, logits.bias, features)};
      });
  const auto logits = results[1].to(LB_F32).reshape({b, frames, kClasses});
  const auto probabilities = lb::softmax(logits, -1).mean({1});
  out.set("features", results[0].to(LB_F32).reshape({b, frames, kJudgeFeatures}));
  out.set("frame_logits", logits);
  out.set("probabilities", probabilities);

  const auto prompts = in.texts("prompt");
  if (prompts.empty()) {
    return;
  }
  if (static_cast<int64_t>(prompts.size()) != b) {
    throw lb::Error(LB_INVALID_ARGUMENT, std::to_string(prompts.size()) + " prompts for " +
                                             std::to_string(b) + " clips");
  }
  std::vector<int64_t> labels;
  for (const auto& prompt : prompts) {
    labels.push_back(label_of(prompt));
    if (labels.back() < 0) {
      throw lb::Error(LB_INVALID_ARGUMENT, "the empty prompt names no digit to reward");
    }
  }
  out.set("reward", probabilities.gather(1, lb::tensor(labels, {b, 1})).reshape({b}));
}

}  // namespace quickstart
