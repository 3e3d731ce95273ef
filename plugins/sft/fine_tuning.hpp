// SPDX-License-Identifier: Apache-2.0
// Supervised fine-tuning by flow matching (Lipman et al. 2023): the network learns the velocity
// noise - x0 at the noise levels that a prepare hook drew.
#pragma once

#include <cstdint>

#include <limbeck/method.hpp>

namespace sft {

struct Options {
  bool precondition_outputs = false;

  template <class V>
  void visit(V& v) {
    v("precondition_outputs", precondition_outputs,
      "Compare x0 = x - sigma v with the clean latents instead of v with noise - x0.")
        .alias("training.model.precondition_outputs");
  }
};

class FineTuning : public lb::Method {
 public:
  using Options = sft::Options;
  enum : uint32_t { kStudent };
  static constexpr lb_role roles[] = {
      {"student", "The network that is trained.", "limbeck.video-dit/1", lb::kTrained, 0}};
  static constexpr const char* reads[] = {"latents", "noise", "noisy", "timestep", "context?"};
  static constexpr const char* provides[] = {"limbeck.terms/1"};

  explicit FineTuning(const Options& options)
      : precondition_outputs_(options.precondition_outputs) {}

  // The manifest's [[losses]] of "prediction" and "target", or the mean squared error of the two,
  // in f32 (f64 for a network in f64). Terms also get "velocity", what the network predicted: the
  // same as "prediction" unless outputs are preconditioned. Metric: "loss".
  lb::Tensor loss(const lb::Step& step) override;

 private:
  bool precondition_outputs_;
};

}  // namespace sft
