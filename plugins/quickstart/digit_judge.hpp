// SPDX-License-Identifier: Apache-2.0
// The reward "digit_judge": a small classifier of frames.
#pragma once

#include <limbeck/network.hpp>

namespace quickstart {

inline constexpr int64_t kJudgeFeatures = 64;

// For each frame: 3x3 convolution to 16 channels, ReLU, 3x3 convolution with stride 2 to 32
// channels, ReLU, linear to 64 features, ReLU, linear to 10 logits.
//   pixels [b, 1, F, height, width] in [-1, 1], text prompt? "digit 3"
//     -> reward [b]             probability of the prompt's digit, mean over frames; if prompt
//        probabilities [b, 10]  mean over frames
//        features [b, F, 64], frame_logits [b, F, 10]
class DigitJudge : public lb::Network {
 public:
  static constexpr const char* kind = "limbeck.reward/1";
  static constexpr const char* provides[] = {"limbeck.reward/1", "limbeck.differentiable/1"};

  struct Options {
    int64_t height = 8;
    int64_t width = 16;

    template <class V>
    void visit(V& v) {
      v("height", height, "Height of a frame in pixels, even.", "[2, inf)");
      v("width", width, "Width of a frame in pixels, even.", "[2, inf)");
    }
  };

  DigitJudge(const Options& options, const lb::Builder& builder);

  void describe(lb::Batch& facts) override;
  void forward(const lb::Units& units, const lb::Batch& in, lb::Batch& out) override;

 private:
  struct Layer {
    lb::Param weight;
    lb::Param bias;
  };
  static Layer layer(const lb::Builder& builder, const char* name, lb::Ints sizes);

  Options options_;
  Layer conv1_{}, conv2_{}, hidden_{}, logits_{};
};

}  // namespace quickstart
