// SPDX-License-Identifier: Apache-2.0
#include "basics/teacher_score.hpp"

#include <limbeck/diffusion/convert.hpp>
#include <limbeck/diffusion/predict.hpp>
#include <limbeck/diffusion/schedule.hpp>

#include "basics/velocity_error.hpp"

namespace basics {
namespace {

namespace diffusion = lb::diffusion;

diffusion::ScoreNorm norm_of(const std::string& name) {
  return name == "batch"   ? diffusion::ScoreNorm::kBatch
         : name == "frame" ? diffusion::ScoreNorm::kFrame
                           : diffusion::ScoreNorm::kSample;
}

// direction_loss() with the entries `weight` and `mask`.
lb::Tensor weighted_loss(const lb::Tensor& x,
                         const lb::Tensor& direction,
                         const lb::Batch& values) {
  const std::vector<int64_t> sizes = x.sizes();
  const lb::Tensor weight = values.find("weight");
  const lb::Tensor mask = values.find("mask");
  lb::Tensor counted_x = x;
  lb::Tensor counted_direction = direction;
  // The loss is a square: the root goes to both factors.
  const auto count = [&](const lb::Tensor& factor) {
    counted_x = counted_x * factor.sqrt();
    counted_direction = counted_direction * factor.sqrt();
  };
  if (weight.defined()) {
    count(spread(diffusion::full_precision(weight), "weight", sizes));
  }
  if (!mask.defined()) {
    return diffusion::direction_loss(counted_x, counted_direction);
  }
  const lb::Tensor shown =
      spread(diffusion::full_precision(mask), "mask", sizes).expand(sizes).contiguous();
  count(shown);
  return diffusion::direction_loss(counted_x, counted_direction) * static_cast<double>(x.numel()) /
         shown.sum().clamp(1.0, HUGE_VAL);
}

}  // namespace

TeacherScore::TeacherScore(const Options& options)
    : options_(options), teacher_(options.teacher), norm_(norm_of(options.normalizer)) {
  if (options.min_timestep_ratio > options.max_timestep_ratio) {
    throw lb::Error(LB_INVALID_ARGUMENT, "min_timestep_ratio is larger than max_timestep_ratio");
  }
}

lb::Tensor TeacherScore::loss(const lb::Step& step, const lb::Batch& values) {
  const lb::Tensor mixed = diffusion::full_precision(values["noisy"]);
  const lb::Tensor velocity = diffusion::full_precision(values["velocity"]);
  const lb::Tensor sigma =
      diffusion::per_video(diffusion::sigma_of(diffusion::full_precision(values["timestep"])));
  const lb::Tensor x = diffusion::x0_from_velocity(mixed, velocity, sigma);
  const lb::Tensor sample = x.detach();

  const double shift = options_.flow_shift > 0 ? options_.flow_shift
                                               : step.facts().number("pipeline.flow_shift", 1.0);
  const lb::Tensor levels =
      diffusion::score_level(step.uniform("teacher_score.level", {x.size(0)}), shift,
                             options_.min_timestep_ratio, options_.max_timestep_ratio);
  const lb::Tensor level = diffusion::per_video(levels);
  const lb::Tensor timestep = levels * diffusion::kTimeScale;
  const lb::Tensor noisy =
      diffusion::add_noise(sample, step.normal("teacher_score.noise", x.sizes()), level);

  const uint32_t faker = step.models().has(kCritic) ? kCritic : kStudent;
  const lb::Tensor fake = diffusion::x0_from_velocity(
      noisy,
      diffusion::predict_velocity(step.models(), faker, values, noisy, timestep, LB_RUN_NO_GRAD),
      level);
  const lb::Tensor real =
      diffusion::x0_from_velocity(noisy, teacher_.velocity(step, values, noisy, timestep), level);
  const auto score = diffusion::score_difference(sample, fake, real, norm_);
  step.log("teacher_score/grad_abs_mean", score.direction.abs().mean());
  step.log("teacher_score/norm", score.norm.mean());
  step.log("teacher_score/nonfinite", score.nonfinite, LB_SUM);
  return weighted_loss(x, score.direction, values);
}

}  // namespace basics
