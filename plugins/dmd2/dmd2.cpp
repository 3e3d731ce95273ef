// SPDX-License-Identifier: Apache-2.0
#include "dmd2.hpp"

#include <algorithm>

#include <limbeck/diffusion/convert.hpp>
#include <limbeck/diffusion/guidance.hpp>
#include <limbeck/diffusion/predict.hpp>

namespace dmd2 {
namespace {

namespace diffusion = lb::diffusion;

void require(bool holds, const std::string& message) {
  if (!holds) {
    throw lb::Error(LB_INVALID_ARGUMENT, message);
  }
}

diffusion::ScoreNorm norm_of(const std::string& name) {
  return name == "batch"   ? diffusion::ScoreNorm::kBatch
         : name == "frame" ? diffusion::ScoreNorm::kFrame
                           : diffusion::ScoreNorm::kSample;
}

// Both batches as one, the second behind the first.
lb::Batch stacked(const lb::Batch& first, const lb::Batch& second, int64_t samples) {
  lb::Batch both;
  for (const auto& name : first.names()) {
    const auto shape = first.has_tensor(name) ? first[name].sizes() : std::vector<int64_t>();
    if (!shape.empty() && shape[0] == samples) {
      both.set(name, lb::cat({first[name], second[name]}, 0));
    }
  }
  return both;
}

void log_moments(const lb::Step& step, const std::string& name, const lb::Tensor& x) {
  const auto mean = x.mean();
  step.log(("dmd/" + name + "_mean").c_str(), mean);
  step.log(("dmd/" + name + "_std").c_str(), (x - mean).square().mean().sqrt());
}

}  // namespace

Dmd2::Dmd2(const Options& options) : options_(options), norm_(norm_of(options.normalizer)) {
  auto& steps = options_.dmd_denoising_steps;
  if (!steps.empty() && steps.back() == 0) {
    steps.pop_back();
  }
  const bool descends =
      std::adjacent_find(steps.begin(), steps.end(), std::less_equal<>()) == steps.end();
  require(!steps.empty() && descends && steps.front() <= diffusion::kTimeScale && steps.back() > 0,
          "dmd_denoising_steps must descend within (0, 1000], such as [1000, 750, 500, 250]");
  require(options_.min_timestep_ratio <= options_.max_timestep_ratio,
          "min_timestep_ratio is larger than max_timestep_ratio");
  const auto& shape = options_.latent_shape;
  require(shape.empty() || (shape.size() == 4 && *std::min_element(shape.begin(), shape.end()) > 0),
          "latent_shape needs four positive numbers: [channels, frames, height, width]");
  require(!options_.critic_reuse_rollout || options_.update_order == "joint",
          "critic_reuse_rollout needs update_order = \"joint\": in a round of its own the critic "
          "has another batch");
  require(options_.regression_weight == 0 || options_.rollout_mode == "data_latent",
          "regression_weight compares samples with the data they were noised from: it needs "
          "rollout_mode = \"data_latent\"");
  require(options_.gan_loss_weight == 0,
          "gan_loss_weight is not available: a discriminator reads features of the critic, and "
          "networks of limbeck.video-dit/1 offer none; set it to 0");
}

bool Dmd2::is_guided() const {
  return options_.real_score_guidance_scale != 1.0 && options_.cfg_uncond_text != "keep";
}

double Dmd2::shift(const lb::Step& step) const {
  return options_.flow_shift > 0 ? options_.flow_shift
                                 : step.facts().number("pipeline.flow_shift", 1.0);
}

void Dmd2::start(const lb::Step& step) {
  if (!is_guided() || options_.cfg_uncond_text != "negative_prompt") {
    return;
  }
  if (!step.models().has(kTextEncoder)) {
    throw lb::Error(LB_FAILED_PRECONDITION,
                    "guidance leads away from the negative prompt, and nothing encodes it: add "
                    "[models.text_encoder], or set cfg_uncond_text = \"zero\" or "
                    "real_score_guidance_scale = 1");
  }
  negative_ = step.models().run(kTextEncoder, lb::Batch().set("prompt", options_.negative_prompt),
                                LB_RUN_NO_GRAD);
}

bool Dmd2::updates_student(int64_t step) const {
  const auto interval = std::max<int64_t>(1, options_.generator_update_interval);
  return step > options_.critic_warmup_steps && step % interval == 0;
}

void Dmd2::plan(int64_t step, lb::Plan& plan) {
  if (updates_student(step)) {
    plan.round().update(kStudent);
    if (options_.update_order == "joint") {
      plan.update(kCritic);
      return;
    }
  }
  plan.round().update(kCritic);
}

lb::Tensor Dmd2::loss(const lb::Step& step) {
  lb::Tensor sample;
  if (step.updates(kStudent)) {
    const auto x = rollout(step, kStudentDraws, true);
    const auto loss = student_loss(step, x);
    step.backward(LB_BIT(kStudent), loss);
    step.log("generator_loss", loss.detach());
    step.log("loss", loss.detach());
    sample = x.detach();
  }
  // The student's graph is gone before the critic's begins.
  if (step.updates(kCritic)) {
    if (!sample.defined() || !options_.critic_reuse_rollout) {
      sample = rollout(step, kCriticDraws, false);
    }
    const auto loss = critic_loss(step, sample);
    step.backward(LB_BIT(kCritic), loss);
    step.log("fake_score_loss", loss.detach());
    step.log("loss", loss.detach());
  }
  step.log("update_student", step.updates(kStudent) ? 1 : 0, LB_MAX);
  return {};
}

Dmd2::Level Dmd2::level_at(const lb::Step& step, const lb::Tensor& timestep) const {
  const auto sigma = options_.sigma_lookup == "grid"
                         ? diffusion::Grid(shift(step)).sigma_of(timestep)
                         : diffusion::sigma_of(timestep);
  return {timestep, diffusion::per_video(sigma)};
}

Dmd2::Level Dmd2::draw_level(const lb::Step& step, const char* purpose, int64_t samples) const {
  auto u = step.uniform(purpose, {samples});
  if (options_.score_timesteps == "batch") {
    u = u.narrow(0, 0, 1).expand({samples}).contiguous();
  }
  const auto level = diffusion::score_level(u, shift(step), options_.min_timestep_ratio,
                                            options_.max_timestep_ratio);
  return level_at(step, level * diffusion::kTimeScale);
}

std::vector<int64_t> Dmd2::sample_sizes(const lb::Batch& batch) const {
  if (options_.latent_shape.empty() && batch.has_tensor("latents")) {
    return batch["latents"].sizes();
  }
  if (options_.latent_shape.empty()) {
    throw lb::Error(LB_FAILED_PRECONDITION,
                    "the size of a sample is not known, the data has no latents: set latent_shape "
                    "= [channels, frames, height, width]");
  }
  auto sizes = options_.latent_shape;
  sizes.insert(sizes.begin(), batch[batch.has_tensor("context") ? "context" : "row"].size(0));
  return sizes;
}

// The student's x0 at a step of its sampler that is drawn anew for every micro-step. Only the
// forward at that step has history; those before it make its input.
lb::Tensor Dmd2::rollout(const lb::Step& step, const Purposes& draws, bool with_history) const {
  const auto& batch = step.batch();
  std::vector<double> timesteps(options_.dmd_denoising_steps.begin(),
                                options_.dmd_denoising_steps.end());
  if (options_.warp_denoising_step) {
    timesteps = diffusion::warp(timesteps, shift(step));
  }
  const auto count = static_cast<int64_t>(timesteps.size());
  const auto exit = step.choose(draws.exit, count);
  step.log("dmd/exit_index", exit);
  const auto sizes = sample_sizes(batch);
  const auto level = [&](int64_t i) {
    return level_at(step, lb::full({sizes[0]}, timesteps[static_cast<size_t>(i)]));
  };
  const auto noise = [&](int64_t i) {
    return step.normal(draws.rollout, sizes, static_cast<uint32_t>(i));
  };
  const auto x0_at = [&](const lb::Tensor& x, int64_t i, uint32_t flags) {
    const auto at = level(i);
    const auto v =
        diffusion::predict_velocity(step.models(), kStudent, batch, x, at.timestep, flags);
    return diffusion::x0_from_velocity(x, v, at.sigma);
  };

  lb::Tensor at_exit;
  if (options_.rollout_mode == "data_latent") {
    at_exit = diffusion::add_noise(diffusion::full_precision(batch["latents"]), noise(0),
                                   level(exit).sigma);
  } else {
    auto x = noise(0);
    at_exit = x;
    const auto last = options_.rollout_forwards == "all" ? count - 1 : exit;
    for (int64_t i = 0; i < last; ++i) {
      const auto x0 = x0_at(x, i, LB_RUN_NO_GRAD);
      x = diffusion::add_noise(x0, noise(i + 1), level(i + 1).sigma);
      at_exit = i + 1 == exit ? x : at_exit;
    }
  }
  return x0_at(at_exit, exit, with_history ? 0 : LB_RUN_NO_GRAD);
}

lb::Tensor Dmd2::student_loss(const lb::Step& step, const lb::Tensor& x) const {
  const auto sample = x.detach();
  const auto level = draw_level(step, kStudentDraws.level, x.size(0));
  const auto noisy =
      diffusion::add_noise(sample, step.normal(kStudentDraws.noise, x.sizes()), level.sigma);
  const auto velocity = diffusion::predict_velocity(step.models(), kCritic, step.batch(), noisy,
                                                    level.timestep, LB_RUN_NO_GRAD);
  const auto fake = diffusion::x0_from_velocity(noisy, velocity, level.sigma);
  const auto real = teacher_x0(step, noisy, level);
  const auto score = diffusion::score_difference(sample, fake, real, norm_);
  log_moments(step, "real", real);
  log_moments(step, "fake", fake);
  step.log("dmd/grad_abs_mean", score.direction.abs().mean());
  step.log("dmd/norm", score.norm.mean());
  step.log("dmd/nonfinite", score.nonfinite, LB_SUM);
  step.log("dmd/t_mean", level.timestep.mean());
  auto loss = diffusion::direction_loss(x, score.direction);
  if (options_.regression_weight > 0) {
    const auto latents = step.batch()["latents"].to(x.dtype());
    const auto regression = lb::mse_loss(x, latents);
    step.log("dmd/regression_loss", regression.detach());
    loss = loss + regression * options_.regression_weight;
  }
  return loss;
}

// The teacher's x0 with guidance.
lb::Tensor Dmd2::teacher_x0(const lb::Step& step,
                            const lb::Tensor& noisy,
                            const Level& level) const {
  const auto samples = noisy.size(0);
  const auto& conditional = step.batch();
  const auto x0_of = [&](const lb::Batch& condition) {
    const auto v = diffusion::predict_velocity(step.models(), kTeacher, condition, noisy,
                                               level.timestep, LB_RUN_NO_GRAD);
    return diffusion::x0_from_velocity(noisy, v, level.sigma);
  };
  if (!is_guided()) {
    return x0_of(conditional);
  }
  const auto unconditional = without_text(conditional, samples);
  const double g = options_.real_score_guidance_scale;
  if (!options_.guidance_in_one_batch) {
    return diffusion::guide(x0_of(unconditional), x0_of(conditional), g);
  }
  require(conditional["context"].size(1) == unconditional["context"].size(1),
          "guidance_in_one_batch needs a negative prompt of as many tokens as the texts of the "
          "data: " +
              unconditional["context"].shape() + " and " + conditional["context"].shape());
  const auto v = diffusion::predict_velocity(
      step.models(), kTeacher, stacked(unconditional, conditional, samples),
      lb::cat({noisy, noisy}, 0), lb::cat({level.timestep, level.timestep}, 0), LB_RUN_NO_GRAD);
  return diffusion::x0_from_velocity(
      noisy, diffusion::guide(v.narrow(0, 0, samples), v.narrow(0, samples, samples), g),
      level.sigma);
}

// The same with what guidance leads away from as text.
lb::Batch Dmd2::without_text(const lb::Batch& batch, int64_t samples) const {
  lb::Batch other = batch.copy();
  const auto context = batch["context"];
  if (options_.cfg_uncond_text == "zero") {
    return std::move(other.set("context", lb::zeros_like(context)));
  }
  for (const char* name : {"context", "context_mask"}) {
    other.drop(name);
    if (const auto one = negative_.find(name); one.defined()) {
      auto sizes = one.sizes();
      sizes[0] = samples;
      other.set(name, one.expand(sizes).contiguous());
    }
  }
  return other;
}

lb::Tensor Dmd2::critic_loss(const lb::Step& step, const lb::Tensor& x0) const {
  const auto level = draw_level(step, kCriticDraws.level, x0.size(0));
  const auto noise = step.normal(kCriticDraws.noise, x0.sizes());
  const auto noisy = diffusion::add_noise(x0, noise, level.sigma);
  const auto v =
      diffusion::predict_velocity(step.models(), kCritic, step.batch(), noisy, level.timestep, 0);
  if (options_.critic_loss_type == "x0") {
    return lb::mse_loss(diffusion::x0_from_velocity(noisy, v, level.sigma), x0);
  }
  return lb::mse_loss(v, diffusion::velocity(x0, noise).to(v.dtype()));
}

}  // namespace dmd2
