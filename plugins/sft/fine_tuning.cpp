// SPDX-License-Identifier: Apache-2.0
#include "fine_tuning.hpp"

#include <limbeck/diffusion/convert.hpp>
#include <limbeck/diffusion/schedule.hpp>

namespace sft {
namespace {

namespace diffusion = lb::diffusion;

// What the student reads: the batch, whose timesteps go to 1000, with those its network counts in.
lb::Batch input_of(const lb::Models& models, const lb::Batch& batch) {
  const double scale =
      models.facts(FineTuning::kStudent).number("time_scale", diffusion::kTimeScale);
  if (scale == diffusion::kTimeScale) {
    return lb::Batch::view(batch.raw());
  }
  lb::Batch in = batch.copy();
  in.set("timestep", batch["timestep"] * (scale / diffusion::kTimeScale));
  return in;
}

}  // namespace

lb::Tensor FineTuning::loss(const lb::Step& step) {
  const auto& batch = step.batch();
  auto prediction = step.models().run(kStudent, input_of(step.models(), batch))["velocity"];
  // The error is a difference of nearly equal numbers: 16 bits are not enough for it.
  const lb_dtype type = prediction.dtype() == LB_F64 ? LB_F64 : LB_F32;
  prediction = prediction.to(type);
  auto values = batch.copy();
  values.set("velocity", prediction);
  auto target = batch["latents"].to(type);
  if (precondition_outputs_) {
    const auto sigma = diffusion::per_video(diffusion::sigma_of(batch["timestep"].to(type)));
    prediction = diffusion::x0_from_velocity(batch["noisy"].to(type), prediction, sigma);
  } else {
    target = diffusion::velocity(target, batch["noise"].to(type));
  }

  values.set("prediction", prediction).set("target", target);
  auto loss = step.terms(kStudent, values);
  if (!loss.defined()) {
    loss = lb::mse_loss(prediction, target);
  }
  step.log("loss", loss.detach());
  return loss;
}

}  // namespace sft
