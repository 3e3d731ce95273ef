// SPDX-License-Identifier: Apache-2.0
// A training method: it names the roles it needs and computes the loss of a micro-step. The host
// has the weights, the optimizer, the random numbers and the loop. A manifest uses it like this:
//
//   [method]
//   type = "my_plugin"
#include <limbeck/plugin.hpp>

namespace {

constexpr uint32_t kStudent = 0;

// Flow matching: the network learns the velocity from clean samples to noise.
class MyMethod : public lb::Method {
 public:
  static constexpr lb_role roles[] = {
      {"student", "The network that learns.", "limbeck.video-dit/1", lb::kTrained, 0}};
  // The network reads what it needs of the batch; "?" marks what may be missing.
  static constexpr const char* reads[] = {"latents", "noise", "noisy", "timestep", "context?"};
  // Terms of [[losses]] are summed by step.terms().
  static constexpr const char* provides[] = {"limbeck.terms/1"};

  lb::Tensor loss(const lb::Step& step) override {
    const auto& batch = step.batch();
    const auto prediction = step.models().run(kStudent, batch)["velocity"].to(LB_F32);
    const auto target = batch["noise"].to(LB_F32) - batch["latents"].to(LB_F32);

    auto values = batch.copy();
    values.set("prediction", prediction).set("target", target);
    auto loss = step.terms(kStudent, values);
    if (!loss.defined()) {
      loss = lb::mse_loss(prediction, target);
    }
    step.log("loss", loss.detach());
    return loss;
  }
};

}  // namespace

LB_PLUGIN(lb::method<MyMethod>("my_plugin", "Flow matching."))
