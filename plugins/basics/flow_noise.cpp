// SPDX-License-Identifier: Apache-2.0
#include "basics/flow_noise.hpp"

#include <vector>

#include <limbeck/diffusion/density.hpp>
#include <limbeck/diffusion/schedule.hpp>

namespace basics {
namespace {

namespace diffusion = lb::diffusion;

constexpr uint32_t kNormaliser = 0;

// The first data.num_latent_t frames, if the manifest says how many.
lb::Tensor cut(const lb::Tensor& latents, const lb::Step& step) {
  const auto wanted = static_cast<int64_t>(step.facts().number("data.num_latent_t", 0.0));
  const int64_t frames = latents.size(2);
  if (wanted <= 0 || wanted == frames) {
    return latents;
  }
  if (wanted > frames) {
    throw lb::Error(LB_INVALID_ARGUMENT,
                    "samples have " + std::to_string(frames) +
                        " latent frames and training.data.num_latent_t asks for " +
                        std::to_string(wanted) + "; lower it or leave it out");
  }
  return latents.narrow(2, 0, wanted);
}

lb::Tensor normalise(const lb::Tensor& latents, const lb::Step& step) {
  if (!step.models().has(kNormaliser)) {
    return latents;
  }
  const lb::Batch facts = step.models().facts(kNormaliser);
  const int64_t channels = latents.size(1);
  const auto statistic = [&](const char* name) {
    const lb::Tensor values = facts[name];
    if (values.numel() != channels) {
      throw lb::Error(LB_INVALID_ARGUMENT, "'raw_latents' has " + std::to_string(channels) +
                                               " channels and '" + name + "' of the vae " +
                                               std::to_string(values.numel()));
    }
    return values.to(LB_F32).to_place(LB_DEVICE).reshape({1, channels, 1, 1, 1});
  };
  const lb::Tensor mean = statistic("latents_mean");
  return (latents - mean) / statistic("latents_std");
}

}  // namespace

lb::Tensor FlowNoise::draw_places(const lb::Step& step, int64_t count) const {
  constexpr const char* kPurpose = "flow_noise.timestep";
  if (options_.weighting_scheme == "logit_normal") {
    const lb::Tensor z = step.normal(kPurpose, {count}).to(LB_F64);
    return diffusion::logit_normal(z, options_.logit_mean, options_.logit_std);
  }
  const lb::Tensor u = step.uniform(kPurpose, {count}).to(LB_F64);
  return options_.weighting_scheme == "mode" ? diffusion::mode(u, options_.mode_scale) : u;
}

void FlowNoise::prepare(const lb::Step& step, lb::Batch& batch) {
  const lb::Tensor raw = batch["raw_latents"];
  if (raw.dim() != 5) {
    throw lb::Error(LB_INVALID_ARGUMENT, "'raw_latents' has shape " + raw.shape() +
                                             "; expected [samples, channels, frames, height, "
                                             "width]");
  }
  const lb::Tensor latents = normalise(cut(raw, step).to(LB_F32), step).contiguous();
  const int64_t samples = latents.size(0);
  const lb::Tensor noise = step.normal("flow_noise.noise", latents.sizes());

  const double s = options_.flow_shift > 0.0 ? options_.flow_shift
                                             : step.facts().number("pipeline.flow_shift", 1.0);
  // Levels in f64, rounded once: in f32 the shift alone moves a timestep by its last bit.
  const lb::Tensor places = draw_places(step, samples);
  const lb::Tensor level = options_.discrete ? diffusion::discrete_level(places, s)
                                             : diffusion::continuous_level(places, s);
  const lb::Tensor sigma = level.to(LB_F32);

  static const lb::Op lerp("aten::lerp", "Tensor");
  batch.set("noisy", lerp({latents, noise, sigma.reshape({samples, 1, 1, 1, 1})}));
  batch.set("timestep", (diffusion::kTimeScale * level).to(LB_F32));
  batch.set("sigma", sigma);
  batch.set("noise", noise);
  batch.set("latents", latents);
}

}  // namespace basics
