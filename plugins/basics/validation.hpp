// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <limbeck/callback.hpp>

#include "basics/clips.hpp"

namespace basics {

// Samples videos while a run trains, always from the same noise, so that pictures of different
// steps can be compared. Also answers `limbeck sample`.
//
// Sampler: Euler steps x <- x + (sigma_next - sigma) v over the levels S_s(1 - j / steps), from
// noise at 1 to 0, in f32. With `timesteps`, for a distilled student: x <- (1 - sigma_next) x0 +
// sigma_next noise with x0 = x - sigma v and fresh noise, over the levels timestep / 1000 and 0,
// not shifted again. Guidance g: v = u + g (c - u) with u the velocity for `negative_prompt`; for g
// = 1, and without a text encoder, u is not computed. Video k of the run starts from row k of draw
// "validation.noise" of step 0, whatever `batch_size` is.
//
// Writes <output_dir>/validation/step_<n>.png (strips of frames, one row for each prompt) and .gif,
// and hands both to the trackers, with the prompts as caption, as validation_frames_<steps>_steps
// and validation_videos_<steps>_steps. Metrics: validation/<steps>_steps_video_count and
// validation/<steps>_steps_duration_sec. A file that cannot be written is a warning. `limbeck
// sample` gets a .png and .gif for each prompt and samples.png, samples.gif with all of them.
class Validation final : public lb::Callback {
 public:
  static constexpr lb_role needs[] = {
      {"student", "The network that is sampled, with its averaged weights if it has them.",
       "limbeck.video-dit/1", lb::kFrozen, 0},
      {"vae", "Decodes the samples.", "limbeck.vae/1", lb::kFrozen, 0},
      {"text_encoder", "Encodes the prompts; without one, videos are sampled without text.",
       "limbeck.text-encoder/1", lb::kOptional, 0}};
  static constexpr uint64_t events = LB_BIT(LB_ON_START) | LB_BIT(LB_ON_VALIDATE);
  static constexpr const char* provides[] = {LB_SAMPLE_EXTENSION};

  struct Options {
    std::vector<std::string> prompts;
    int64_t num_videos_per_prompt = 1;
    int64_t sampling_steps = 40;
    bool has_sampling_steps = false;
    std::vector<double> timesteps;
    double guidance_scale = 1.0;
    bool has_guidance_scale = false;
    std::string negative_prompt;
    double flow_shift = 0.0;
    std::vector<int64_t> latent_shape;
    int64_t seed = 0;
    bool use_ema = true;
    bool run_at_start = true;
    int64_t batch_size = 16;
    double fps = 8.0;
    int64_t columns = 0;
    int64_t scale = 1;

    template <class V>
    void visit(V& v) {
      v("prompts", prompts, "What to show; without prompts only `limbeck sample` samples.");
      v("num_videos_per_prompt", num_videos_per_prompt, "Videos for each prompt.", "[1, inf)");
      v("sampling_steps", sampling_steps,
        "Steps of the sampler.\n\nLeft out: num_inference_steps of [pipeline] if that is set.",
        "[1, inf)");
      v.given("sampling_steps", has_sampling_steps);
      v("timesteps", timesteps,
        "Timesteps of a few-step sampler, descending within (0, 1000], for a distilled student; "
        "none: Euler steps.");
      v("guidance_scale", guidance_scale,
        "Strength of guidance by the prompt; 1 is without and costs half.\n\nLeft out: "
        "guidance_scale of [pipeline] if that is set.",
        "[0, inf)");
      v.given("guidance_scale", has_guidance_scale);
      v("negative_prompt", negative_prompt, "What guidance leads away from.");
      v("flow_shift", flow_shift,
        "Shift of the sampler's levels towards noise; 0 takes flow_shift of [pipeline].",
        "[0, inf)");
      v("latent_shape", latent_shape,
        "Size of a sample as [channels, frames, height, width] in latents.\n\nLeft out: from "
        "num_latent_t (or num_frames), num_height and num_width of [training.data].");
      v("seed", seed, "Another seed gives other noise.", "[0, 65535]");
      v("use_ema", use_ema, "Sample with the averaged weights where there are any.");
      v("run_at_start", run_at_start, "Also sample before the first step.");
      v("batch_size", batch_size, "Videos sampled at once.", "[1, inf)");
      v("fps", fps, "Frames a second of the animation.", "(0, 50]");
      v("columns", columns, "Videos in a row of the pictures; 0: those of one prompt.", "[0, inf)");
      v("scale", scale, "Enlargement of the pictures.", "[1, 64]");
    }
  };

  explicit Validation(const Options& options);

  void event(const lb::Event& event) override;
  // `prompts`: text rows "prompt", one for each video, and text "output", the folder to write to.
  void sample(const lb::Event& event, const lb::Batch& prompts);

 private:
  void validate(const lb::Event& event) const;
  // The videos of the prompts, one for each.
  std::vector<Clip> make_clips(const lb::Event& event,
                               const std::vector<std::string>& prompts) const;
  // Denoises noises[0] [b, c, T, h, w] for as many prompts and returns the latents; the others are
  // the fresh noise of a few-step sampler.
  lb::Tensor denoise(const lb::Event& event,
                     const std::vector<lb::Tensor>& noises,
                     const std::vector<std::string>& prompts) const;
  int64_t sampling_steps(const lb::Event& event) const;
  // The levels that the sampler visits, from the noisiest, and 0.
  std::vector<double> levels(const lb::Event& event) const;
  std::vector<int64_t> latent_shape(const lb::Event& event) const;
  void check_text(const lb::Event& event) const;

  Options options_;
};

}  // namespace basics
