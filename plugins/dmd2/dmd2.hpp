// SPDX-License-Identifier: Apache-2.0
// DMD2 (Yin et al. 2024): a student of a few steps learns from a teacher of many. The teacher and a
// critic, which learns the student's own samples as they are now, both denoise a noised sample of
// the student; the sample moves along the difference.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <limbeck/diffusion/score.hpp>
#include <limbeck/method.hpp>

namespace dmd2 {

struct Options {
  std::string rollout_mode = "simulate";
  std::vector<int64_t> dmd_denoising_steps;
  bool warp_denoising_step = false;
  std::string rollout_forwards = "needed";
  std::vector<int64_t> latent_shape;
  int64_t generator_update_interval = 1;
  int64_t critic_warmup_steps = 0;
  std::string update_order = "joint";
  bool critic_reuse_rollout = false;
  double real_score_guidance_scale = 1.0;
  std::string cfg_uncond_text = "negative_prompt";
  std::string negative_prompt;
  bool guidance_in_one_batch = false;
  double min_timestep_ratio = 0.0;
  double max_timestep_ratio = 1.0;
  std::string score_timesteps = "sample";
  double flow_shift = 0.0;
  std::string sigma_lookup = "exact";
  std::string normalizer = "sample";
  std::string critic_loss_type = "flow";
  double regression_weight = 0.0;
  double gan_loss_weight = 0.0;
  double fake_score_learning_rate = 0.0;
  std::vector<double> fake_score_betas;
  std::string fake_score_lr_scheduler;

  template <class V>
  void visit(V& v) {
    v.choice("rollout_mode", rollout_mode,
             "Where the student's input comes from: `simulate` runs its own sampler from noise and "
             "needs no videos, `data_latent` noises the videos of the data.",
             {"simulate", "data_latent"});
    v.required("dmd_denoising_steps", dmd_denoising_steps,
               "Timesteps of the student's sampler, descending, within (0, 1000].\n\nA final 0 is "
               "dropped.");
    v("warp_denoising_step", warp_denoising_step,
      "Whether the steps are given without shift and move onto the shifted schedule.");
    v.choice("rollout_forwards", rollout_forwards,
             "`needed` stops at the step that was drawn; `all` runs the steps after it too, as "
             "some trainers do, with the same result.",
             {"needed", "all"});
    v("latent_shape", latent_shape,
      "Size of a sample as [channels, frames, height, width] in latents.\n\nLeft out: that of the "
      "data's latents.");
    v("generator_update_interval", generator_update_interval,
      "The student is updated in every so many steps, the critic in all; 0 or less is 1.");
    v("critic_warmup_steps", critic_warmup_steps, "Steps at the start that train the critic only.",
      "[0, inf)");
    v.choice("update_order", update_order,
             "`joint`: one batch for both, both losses with the weights before the step. "
             "`sequential`: the student on a batch, then the critic on the next one, with rollouts "
             "of the student as updated.",
             {"joint", "sequential"});
    v("critic_reuse_rollout", critic_reuse_rollout,
      "Whether the critic learns from the very samples that the student's loss was computed for, "
      "where there are any; with `joint` only.");
    v("real_score_guidance_scale", real_score_guidance_scale,
      "Guidance g of the teacher, u + g (c - u); 1 is without, and saves a pass.\n\nA strength w "
      "of trainers with c + w (c - u) is g = w + 1.",
      "[0, inf)");
    v.choice("cfg_uncond_text", cfg_uncond_text,
             "What guidance leads away from: `negative_prompt` through the role text_encoder, "
             "`zero` for embeddings of zeros, `keep` for the sample's own text, which is without "
             "guidance.",
             {"negative_prompt", "zero", "keep"});
    v("negative_prompt", negative_prompt, "What guidance leads away from.");
    v("guidance_in_one_batch", guidance_in_one_batch,
      "Whether the teacher's two passes are one of twice the batch.");
    v("min_timestep_ratio", min_timestep_ratio, "Lowest noise level at which scores are compared.",
      "[0, 1]");
    v("max_timestep_ratio", max_timestep_ratio, "Highest noise level at which scores are compared.",
      "[0, 1]");
    v.choice("score_timesteps", score_timesteps,
             "Whether every sample has a level of its own, or the batch has one.",
             {"sample", "batch"});
    v("flow_shift", flow_shift, "Shift of the levels towards noise; 0 takes that of [pipeline].",
      "[0, inf)");
    v.choice("sigma_lookup", sigma_lookup,
             "The level of a timestep t: t / 1000, or that of the nearest of the 1000 levels of "
             "the shifted grid.",
             {"exact", "grid"});
    v.choice("normalizer", normalizer,
             "What the mean distance of sample and teacher is over, by which the direction is "
             "divided.",
             {"sample", "frame", "batch"});
    v.choice("critic_loss_type", critic_loss_type,
             "What the critic's squared error is of: the velocity, or x0.", {"flow", "x0"});
    v("regression_weight", regression_weight,
      "Weight of the squared distance of the student's sample to the data it was noised from; with "
      "`data_latent` only.",
      "[0, inf)");
    v("gan_loss_weight", gan_loss_weight,
      "Weight of a discriminator on features of the critic; no network offers any yet.",
      "[0, inf)");
    v.required("fake_score_learning_rate", fake_score_learning_rate, "Learning rate of the critic.",
               "(0, inf)")
        .alias("models.critic.optimizer.learning_rate");
    v("fake_score_betas", fake_score_betas,
      "Betas of the critic's optimizer; left out: those of [training.optimizer].")
        .alias("models.critic.optimizer.betas");
    v("fake_score_lr_scheduler", fake_score_lr_scheduler,
      "Learning-rate schedule of the critic; left out: that of [training.optimizer].")
        .alias("models.critic.optimizer.lr_scheduler");
  }
};

class Dmd2 : public lb::Method {
 public:
  using Options = dmd2::Options;
  enum : uint32_t { kStudent, kTeacher, kCritic, kTextEncoder };
  static constexpr lb_role roles[] = {
      {"student", "The few-step generator that is trained.", "limbeck.video-dit/1", lb::kTrained,
       0},
      {"teacher", "Knows the data.", "limbeck.video-dit/1", lb::kFrozen, 0},
      {"critic", "Learns the student's samples.", "limbeck.video-dit/1", lb::kTrained, 0},
      {"text_encoder", "Encodes the negative prompt of guidance.", "limbeck.text-encoder/1",
       lb::kOptional, 0}};
  static constexpr const char* reads[] = {"context?", "context_mask?", "latents?"};

  explicit Dmd2(const Options& options);

  void start(const lb::Step& step) override;
  void plan(int64_t step, lb::Plan& plan) override;
  // Differentiates each loss before it computes the next. Metrics: "loss" (the mean of both),
  // "generator_loss", "fake_score_loss", "update_student", "dmd/...".
  lb::Tensor loss(const lb::Step& step) override;

 private:
  // A noise level: timesteps [b] as the data counts them, and sigma in a shape that meets a video.
  struct Level {
    lb::Tensor timestep;
    lb::Tensor sigma;
  };
  struct Prediction {
    lb::Tensor velocity;
    lb::Tensor x0;
  };
  // What one of the two losses draws under.
  struct Purposes {
    const char* exit;
    const char* rollout;
    const char* level;
    const char* noise;
  };
  static constexpr Purposes kStudentDraws{"dmd2.student.exit", "dmd2.student.rollout",
                                          "dmd2.student.level", "dmd2.student.noise"};
  static constexpr Purposes kCriticDraws{"dmd2.critic.exit", "dmd2.critic.rollout",
                                         "dmd2.critic.level", "dmd2.critic.noise"};

  bool updates_student(int64_t step) const;
  bool is_guided() const;
  double shift(const lb::Step& step) const;
  Level level_at(const lb::Step& step, const lb::Tensor& timestep) const;
  Level draw_level(const lb::Step& step, const char* purpose, int64_t samples) const;
  std::vector<int64_t> sample_sizes(const lb::Batch& batch) const;
  lb::Tensor rollout(const lb::Step& step, const Purposes& draws, bool with_history) const;
  lb::Tensor student_loss(const lb::Step& step, const lb::Tensor& x) const;
  lb::Tensor critic_loss(const lb::Step& step, const lb::Tensor& x0) const;
  lb::Tensor teacher_x0(const lb::Step& step, const lb::Tensor& noisy, const Level& level) const;
  lb::Batch without_text(const lb::Batch& batch, int64_t samples) const;

  Options options_;
  lb::diffusion::ScoreNorm norm_;
  lb::Batch negative_;  // the negative prompt, encoded: context [1, tokens, width], context_mask
};

}  // namespace dmd2
