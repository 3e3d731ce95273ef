// SPDX-License-Identifier: Apache-2.0
// The method "classifier".
#pragma once

#include <limbeck/method.hpp>

namespace quickstart {

// Trains a judge of frames: one random frame of each clip with a little noise, and the cross
// entropy of its logits against the label of the clip. Metrics: loss, accuracy.
class Classifier : public lb::Method {
 public:
  static constexpr lb_role roles[] = {{"judge", "The classifier; gives frame_logits for pixels.",
                                       "limbeck.reward/1", lb::kTrained, 0}};
  static constexpr const char* reads[] = {"pixels", "label"};

  struct Options {
    double noise = 0.1;
    double label_smoothing = 0.05;

    template <class V>
    void visit(V& v) {
      v("noise", noise, "Standard deviation of the noise added to pixels.", "[0, inf)");
      v("label_smoothing", label_smoothing, "Share of the target that is spread over all classes.",
        "[0, 1)");
    }
  };

  explicit Classifier(const Options& options) : options_(options) {}

  lb::Tensor loss(const lb::Step& step) override;

 private:
  Options options_;
};

}  // namespace quickstart
