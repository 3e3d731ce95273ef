// SPDX-License-Identifier: Apache-2.0
// Asking a network of capability limbeck.video-dit/1 for the velocity at a place of one's own.
#pragma once

#include <limbeck/diffusion/schedule.hpp>
#include <limbeck/diffusion/score.hpp>
#include <limbeck/step.hpp>

namespace lb {
inline namespace v1 LB_HIDDEN {
namespace diffusion {

// The velocity that a role's network predicts at `noisy` [b, c, T, h, w] and `timestep` [b], which
// goes to 1000 whatever the network counts to, in f32 (f64 for a network in f64). What else the
// network reads, such as `context`, is taken from `condition`; its own `noisy` and `timestep` are
// not. `flags` are LB_RUN_*. [control]
inline Tensor predict_velocity(const Models& models,
                               uint32_t role,
                               const Batch& condition,
                               const Tensor& noisy,
                               const Tensor& timestep,
                               uint32_t flags = 0) {
  const double scale = models.facts(role).number("time_scale", kTimeScale);
  Batch in = condition.copy();
  in.set("noisy", noisy)
      .set("timestep", scale == kTimeScale ? timestep : timestep * (scale / kTimeScale));
  return full_precision(models.run(role, in, flags)["velocity"]);
}

}  // namespace diffusion
}  // namespace v1
}  // namespace lb
