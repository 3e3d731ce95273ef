// SPDX-License-Identifier: Apache-2.0
#include "basics/validation.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <stdexcept>

#include <limbeck/diffusion/guidance.hpp>
#include <limbeck/diffusion/sampler.hpp>
#include <limbeck/group.hpp>

#include "media/gif.hpp"
#include "media/png.hpp"

namespace basics {
namespace {

enum Role : uint32_t { kStudent, kVae, kPromptEncoder };

constexpr const char* kComponent = "validation";

// Pictures are written once, not by every rank.
bool is_writer() { return lb::Group(LB_WORLD).rank() == 0; }

void write_pictures(const std::filesystem::path& stem,
                    const std::vector<Clip>& clips,
                    int columns,
                    double fps) {
  media::write_png(stem.string() + ".png", contact_sheet(clips, columns));
  media::write_gif(stem.string() + ".gif", side_by_side(clips, columns), fps);
}

// Every item `times` times in a row.
std::vector<std::string> repeat(const std::vector<std::string>& items, int64_t times) {
  std::vector<std::string> result;
  for (const std::string& item : items) {
    result.insert(result.end(), static_cast<size_t>(times), item);
  }
  return result;
}

// What the student reads beside `noisy` and `timestep`: the encoded prompts.
lb::Batch encode(const lb::Models& models, const std::vector<std::string>& prompts) {
  lb::Batch text;
  if (models.has(kPromptEncoder)) {
    const lb::Batch encoded =
        models.run(kPromptEncoder, lb::Batch().set("prompt", prompts), LB_RUN_NO_GRAD);
    text.set("context", encoded["context"]);
    const lb::Tensor mask = encoded.find("context_mask");
    if (mask.defined()) {
      text.set("context_mask", mask);
    }
  }
  return text;
}

}  // namespace

Validation::Validation(const Options& options) : options_(options) {
  const std::vector<int64_t>& shape = options_.latent_shape;
  const bool is_positive = std::all_of(shape.begin(), shape.end(), [](int64_t n) { return n > 0; });
  if (!shape.empty() && (shape.size() != 4 || !is_positive)) {
    throw lb::Error(LB_INVALID_ARGUMENT,
                    "latent_shape needs four positive numbers: [channels, frames, height, width]");
  }
  const std::vector<double>& timesteps = options_.timesteps;
  const bool descends = std::adjacent_find(timesteps.begin(), timesteps.end(),
                                           std::less_equal<>()) == timesteps.end();
  if (!timesteps.empty() && (!descends || timesteps.front() > lb::diffusion::kTimeScale ||
                             timesteps.back() <= 0.0 || options_.has_sampling_steps)) {
    throw lb::Error(LB_INVALID_ARGUMENT,
                    "timesteps must descend within (0, 1000], such as [1000, 750, 500, 250], and "
                    "take the place of sampling_steps");
  }
}

void Validation::event(const lb::Event& event) {
  if (options_.prompts.empty()) {
    return;
  }
  if (event.kind() == LB_ON_START) {
    // What is missing is an error now, not at the first validation.
    latent_shape(event);
    check_text(event);
    if (!options_.run_at_start || event.step() > 0) {
      return;
    }
  }
  validate(event);
}

void Validation::validate(const lb::Event& event) const {
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<Clip> clips =
      make_clips(event, repeat(options_.prompts, options_.num_videos_per_prompt));
  if (!is_writer()) {
    return;
  }
  const auto columns =
      static_cast<int>(options_.columns > 0 ? options_.columns : options_.num_videos_per_prompt);
  const std::filesystem::path stem = std::filesystem::path(event.facts().text("run.output_dir")) /
                                     "validation" / ("step_" + std::to_string(event.step()));
  std::string caption;
  for (const std::string& prompt : options_.prompts) {
    caption += (caption.empty() ? "" : " | ") + prompt;
  }
  const std::string steps = std::to_string(sampling_steps(event)) + "_steps";
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  event.log(("validation/" + steps + "_video_count").c_str(), clips.size(), LB_LAST);
  event.log(("validation/" + steps + "_duration_sec").c_str(), seconds.count(), LB_LAST);
  try {
    write_pictures(stem, clips, columns, options_.fps);
    event.file(("validation_frames_" + steps).c_str(), "image/png", stem.string() + ".png",
               caption);
    event.file(("validation_videos_" + steps).c_str(), "image/gif", stem.string() + ".gif",
               caption);
  } catch (const lb::Error&) {
    throw;
  } catch (const std::runtime_error& error) {
    lb::log(LB_WARN, kComponent, error.what());
  }
}

void Validation::sample(const lb::Event& event, const lb::Batch& prompts) {
  const std::vector<std::string> texts = prompts.texts("prompt");
  if (texts.empty()) {
    throw lb::Error(LB_INVALID_ARGUMENT, "there are no prompts to sample");
  }
  check_text(event);
  const std::vector<Clip> clips = make_clips(event, texts);
  if (!is_writer()) {
    return;
  }
  const std::filesystem::path folder = prompts.text("output");
  for (size_t i = 0; i < clips.size(); ++i) {
    char number[32];
    std::snprintf(number, sizeof number, "%03zu_", i);
    write_pictures(folder / (number + file_stem(texts[i])), {clips[i]}, 1, options_.fps);
  }
  write_pictures(folder / "samples", clips,
                 static_cast<int>(std::max<int64_t>(1, options_.columns)), options_.fps);
}

std::vector<Clip> Validation::make_clips(const lb::Event& event,
                                         const std::vector<std::string>& prompts) const {
  const lb::NoGrad no_grad;
  const auto count = static_cast<int64_t>(prompts.size());
  std::vector<int64_t> sizes = latent_shape(event);
  sizes.insert(sizes.begin(), count);
  const auto seed = static_cast<uint32_t>(options_.seed);
  std::vector<lb::Tensor> noises = {lb::Draws(0, 0).normal("validation.noise", sizes, seed)};
  for (size_t j = 1; j < options_.timesteps.size(); ++j) {
    noises.push_back(
        lb::Draws(0, static_cast<uint32_t>(j)).normal("validation.renoise", sizes, seed));
  }
  std::vector<Clip> clips;
  for (int64_t first = 0; first < count; first += options_.batch_size) {
    const int64_t size = std::min(options_.batch_size, count - first);
    const std::vector<std::string> part(prompts.begin() + first, prompts.begin() + first + size);
    std::vector<lb::Tensor> own;
    for (const lb::Tensor& noise : noises) {
      own.push_back(noise.narrow(0, first, size));
    }
    const lb::Tensor latents = denoise(event, own, part);
    const lb::Batch decoded =
        event.models().run(kVae, lb::Batch().set("latents", latents), LB_RUN_NO_GRAD);
    for (Clip& clip : to_clips(decoded["pixels"], static_cast<int>(options_.scale))) {
      clips.push_back(std::move(clip));
    }
    if (count > options_.batch_size) {
      lb::progress("sampling videos", first + size, count);
    }
  }
  return clips;
}

lb::Tensor Validation::denoise(const lb::Event& event,
                               const std::vector<lb::Tensor>& noises,
                               const std::vector<std::string>& prompts) const {
  const lb::Models models = event.models();
  const auto count = static_cast<int64_t>(prompts.size());
  const lb::Batch& run = event.facts();
  const double g = options_.has_guidance_scale
                       ? options_.guidance_scale
                       : run.number("pipeline.guidance_scale", options_.guidance_scale);
  const bool is_guided = g != 1.0 && models.has(kPromptEncoder);
  const lb::Batch conditional = encode(models, prompts);
  const lb::Batch unconditional =
      is_guided ? encode(models, repeat({options_.negative_prompt}, count)) : lb::Batch();
  const bool is_averaged = options_.use_ema && models.has(kStudent, "limbeck.averaged/1");
  const uint32_t flags = is_averaged ? LB_RUN_NO_GRAD | LB_RUN_AVERAGED : LB_RUN_NO_GRAD;
  const double time_scale = models.facts(kStudent).number("time_scale", lb::diffusion::kTimeScale);
  const std::vector<double> sigmas = levels(event);

  lb::Tensor x = noises[0];
  for (size_t j = 0; j + 1 < sigmas.size(); ++j) {
    const lb::Tensor timestep = lb::full({count}, time_scale * sigmas[j]);
    const auto velocity = [&](const lb::Batch& text) {
      lb::Batch in = text;
      in.set("noisy", x).set("timestep", timestep);
      return models.run(kStudent, in, flags)["velocity"].to(LB_F32);
    };
    lb::Tensor v = velocity(conditional);
    if (is_guided) {
      v = lb::diffusion::guide(velocity(unconditional), v, g);
    }
    const bool renoises = !options_.timesteps.empty() && j + 1 < noises.size();
    x = renoises ? lb::diffusion::renoise_step(x, v, sigmas[j], sigmas[j + 1], noises[j + 1])
                 : lb::add_scaled(x, v, sigmas[j + 1] - sigmas[j]);
  }
  return x;
}

std::vector<double> Validation::levels(const lb::Event& event) const {
  if (options_.timesteps.empty()) {
    const double s = options_.flow_shift > 0.0 ? options_.flow_shift
                                               : event.facts().number("pipeline.flow_shift", 1.0);
    return lb::diffusion::euler_sigmas(sampling_steps(event), s);
  }
  std::vector<double> sigmas;
  for (const double timestep : options_.timesteps) {
    sigmas.push_back(timestep / lb::diffusion::kTimeScale);
  }
  sigmas.push_back(0.0);
  return sigmas;
}

int64_t Validation::sampling_steps(const lb::Event& event) const {
  if (!options_.timesteps.empty()) {
    return static_cast<int64_t>(options_.timesteps.size());
  }
  const auto own = static_cast<double>(options_.sampling_steps);
  return static_cast<int64_t>(options_.has_sampling_steps
                                  ? own
                                  : event.facts().number("pipeline.num_inference_steps", own));
}

// A student that was made for text cannot be sampled without any, nor be guided by one.
void Validation::check_text(const lb::Event& event) const {
  if (event.models().has(kPromptEncoder)) {
    return;
  }
  if (event.models().facts(kStudent).number("context.width", 0.0) > 0) {
    throw lb::Error(LB_FAILED_PRECONDITION,
                    "the network that is sampled reads text, and nothing encodes the prompts: add "
                    "the role 'text_encoder', or remove the prompts");
  }
  if (options_.has_guidance_scale && options_.guidance_scale != 1.0) {
    throw lb::Error(LB_FAILED_PRECONDITION,
                    "guidance leads towards a text, and nothing encodes texts: add the role "
                    "'text_encoder', or set guidance_scale = 1");
  }
}

std::vector<int64_t> Validation::latent_shape(const lb::Event& event) const {
  if (!options_.latent_shape.empty()) {
    return options_.latent_shape;
  }
  const lb::Batch student = event.models().facts(kStudent);
  const lb::Batch vae = event.models().facts(kVae);
  const auto fact = [](const lb::Batch& facts, const char* name) {
    return static_cast<int64_t>(facts.number(name, 0.0));
  };
  const lb::Batch& run = event.facts();
  const int64_t spatial = std::max<int64_t>(1, fact(vae, "spatial_ratio"));
  const int64_t temporal = std::max<int64_t>(1, fact(vae, "temporal_ratio"));
  int64_t frames = fact(run, "data.num_latent_t");
  if (frames == 0 && fact(run, "data.num_frames") > 0) {
    frames = (fact(run, "data.num_frames") - 1) / temporal + 1;
  }
  std::vector<int64_t> shape = {fact(student, "latent_channels"), frames,
                                fact(run, "data.num_height") / spatial,
                                fact(run, "data.num_width") / spatial};
  if (std::any_of(shape.begin(), shape.end(), [](int64_t n) { return n <= 0; })) {
    throw lb::Error(LB_INVALID_ARGUMENT,
                    "the size of a sample is not known: set latent_shape = [channels, frames, "
                    "height, width], or num_latent_t, num_height and num_width of [training.data]");
  }
  return shape;
}

}  // namespace basics
