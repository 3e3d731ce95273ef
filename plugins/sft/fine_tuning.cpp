// SPDX-License-Identifier: Apache-2.0
#include "fine_tuning.hpp"

#include <limbeck/diffusion/convert.hpp>
#include <limbeck/diffusion/predict.hpp>
#include <limbeck/diffusion/schedule.hpp>

namespace sft {

namespace diffusion = lb::diffusion;

lb::Tensor FineTuning::loss(const lb::Step& step) {
  const auto& batch = step.batch();
  // In full precision: the error is a difference of nearly equal numbers.
  auto prediction = diffusion::predict_velocity(step.models(), kStudent, batch, batch["noisy"],
                                                batch["timestep"]);
  const lb_dtype type = prediction.dtype();
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
