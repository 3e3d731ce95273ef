// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <limbeck/prepare.hpp>

namespace basics {

// Makes a training sample of flow matching out of latents: draws noise and noise levels and mixes.
//
//   latents  = (raw_latents - mean_c) / std_c, the first data.num_latent_t frames; mean and std are
//              the facts `latents_mean`, `latents_std` of the vae, 0 and 1 without a vae
//   noise    ~ N(0, 1)                                        draw "flow_noise.noise"
//   u        by `weighting_scheme`, [b]                       draw "flow_noise.timestep"
//   sigma    = S_s((1000 - i) / 1000), i = floor(1000 u) in [0, 999]; S_s(1 - u) if not `discrete`
//   timestep = 1000 sigma
//   noisy    = (1 - sigma) latents + sigma noise
//
// S_s and the densities: limbeck/diffusion. A density is one of places: u = 0 is pure noise, and a
// positive `logit_mean` gives less noise. With logit_normal(0, std), uniform and shift 1 the levels
// are spread evenly around 1/2. Levels are computed in f64 and rounded once, the rest is in f32;
// raw_latents is [b, c, T, h, w].
class FlowNoise final : public lb::Prepare {
 public:
  static constexpr lb_role needs[] = {
      {"vae", "Its statistics normalise the latents; without one they are taken as normalised.",
       "limbeck.vae/1", lb::kOptional, 0}};
  static constexpr const char* reads[] = {"raw_latents"};
  static constexpr const char* writes[] = {"latents", "noise", "timestep", "sigma", "noisy"};

  struct Options {
    std::string weighting_scheme = "uniform";
    double logit_mean = 0.0;
    double logit_std = 1.0;
    double mode_scale = 1.0;
    bool discrete = true;
    double flow_shift = 0.0;

    template <class V>
    void visit(V& v) {
      v.choice("weighting_scheme", weighting_scheme,
               "Density of noise levels.\n\nIt says how often a level is trained, not how much its "
               "loss counts.",
               {"uniform", "logit_normal", "mode"})
          .alias("training.model.weighting_scheme");
      v("logit_mean", logit_mean, "Mean of logit_normal; positive gives less noise.")
          .alias("training.model.logit_mean");
      v("logit_std", logit_std, "Standard deviation of logit_normal.", "(0, inf)")
          .alias("training.model.logit_std");
      v("mode_scale", mode_scale, "How strongly mode prefers the middle; 1.29 is usual.",
        "[-1, 1.7519]")
          .alias("training.model.mode_scale");
      v("discrete", discrete, "Take levels from the grid of 1000, not between them.");
      v("flow_shift", flow_shift,
        "Shift of the levels towards noise; 0 takes flow_shift of [pipeline].", "[0, inf)");
    }
  };

  explicit FlowNoise(const Options& options) : options_(options) {}

  void prepare(const lb::Step& step, lb::Batch& batch) override;

 private:
  lb::Tensor draw_places(const lb::Step& step, int64_t count) const;

  Options options_;
};

}  // namespace basics
