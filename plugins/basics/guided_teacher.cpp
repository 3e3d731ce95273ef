// SPDX-License-Identifier: Apache-2.0
#include "basics/guided_teacher.hpp"

#include <vector>

#include <limbeck/diffusion/guidance.hpp>
#include <limbeck/diffusion/predict.hpp>

namespace basics {

namespace diffusion = lb::diffusion;

lb::Tensor GuidedTeacher::velocity(const lb::Step& step,
                                   const lb::Batch& condition,
                                   const lb::Tensor& noisy,
                                   const lb::Tensor& timestep) {
  const auto velocity_with = [&](const lb::Batch& text) {
    return diffusion::predict_velocity(step.models(), kTeacher, text, noisy, timestep,
                                       LB_RUN_NO_GRAD);
  };
  const lb::Tensor conditional = velocity_with(condition);
  if (options_.guidance_scale == 1.0) {
    return conditional;
  }
  const lb::Tensor unconditional = velocity_with(without_text(step, condition, noisy.size(0)));
  return diffusion::guide(unconditional, conditional, options_.guidance_scale);
}

lb::Batch GuidedTeacher::without_text(const lb::Step& step,
                                      const lb::Batch& condition,
                                      int64_t samples) {
  lb::Batch other = condition.copy();
  if (options_.cfg_uncond_text == "zero") {
    other.set("context", lb::zeros_like(condition["context"]));
    return other;
  }
  if (!negative_.has_tensor("context")) {
    if (!step.models().has(kTextEncoder)) {
      throw lb::Error(LB_INVALID_ARGUMENT,
                      "guidance leads away from the negative prompt, and nothing encodes it: add "
                      "[models.text_encoder], or set cfg_uncond_text = \"zero\" or "
                      "guidance_scale = 1");
    }
    negative_ = step.models().run(kTextEncoder, lb::Batch().set("prompt", options_.negative_prompt),
                                  LB_RUN_NO_GRAD);
  }
  for (const char* name : {"context", "context_mask"}) {
    other.drop(name);
    if (const lb::Tensor one = negative_.find(name); one.defined()) {
      std::vector<int64_t> sizes = one.sizes();
      sizes[0] = samples;
      other.set(name, one.expand(sizes).contiguous());
    }
  }
  return other;
}

}  // namespace basics
