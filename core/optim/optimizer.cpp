// SPDX-License-Identifier: Apache-2.0
#include "core/optim/optimizer.hpp"

#include <algorithm>
#include <cmath>

#include "core/ops/adamw.hpp"
#include "core/optim/norm.hpp"
#include "core/optim/schedule.hpp"

namespace limbeck {
namespace {

// Keeps the scale finite for a zero gradient, as torch.nn.utils.clip_grad_norm_ does.
constexpr double kClipEps = 1e-6;

}  // namespace

RoleOptimizer::RoleOptimizer(Role& role, int64_t horizon)
    : role_(role),
      horizon_(horizon),
      exp_avg_(at::zeros_like(role.master())),
      exp_avg_sq_(at::zeros_like(role.master())),
      part_updates_(role.layout().parts.size()) {}

double RoleOptimizer::learning_rate() const {
  const auto& spec = role_.spec().optimizer;
  return spec.learning_rate * lr_multiplier(spec, updates_, horizon_);
}

RoleOptimizer::Counts RoleOptimizer::counts() const {
  return {updates_, averaged_updates_, part_updates_};
}

void RoleOptimizer::set_counts(const Counts& counts) {
  updates_ = counts.updates;
  averaged_updates_ = counts.averaged_updates;
  part_updates_ = counts.parts;
}

double RoleOptimizer::grad_norm() const {
  role_.settle_grad();
  return std::sqrt(squared_norm(role_.grad()));
}

double RoleOptimizer::clip_scale(double norm, double max_norm) {
  return std::min(1.0, max_norm / (norm + kClipEps));
}

void RoleOptimizer::update(int64_t step, double grad_scale) {
  const at::NoGradGuard no_grad;
  const auto& spec = role_.spec().optimizer;
  const auto& ema = role_.spec().ema;
  const bool is_averaged = ema.has_value() && step >= ema->start_step;
  AdamWConstants constants;
  constants.grad_scale = grad_scale;
  constants.lr = learning_rate();
  constants.beta1 = spec.beta1;
  constants.beta2 = spec.beta2;
  constants.eps = spec.eps;
  constants.average_weight = is_averaged ? 1.0 - ema_decay(*ema, averaged_updates_ + 1) : 0.0;
  for (size_t part = 0; part < part_updates_.size(); ++part) {
    part_updates_[part] += role_.is_touched(part) ? 1 : 0;
  }
  for (const auto& range : role_.layout().trained) {
    const auto slice = [&](const at::Tensor& flat) {
      return flat.narrow(0, range.offset, range.size);
    };
    const auto average = is_averaged ? slice(role_.average()) : at::Tensor();
    if (role_.is_touched(range.part)) {
      constants.weight_decay = range.is_decayed ? spec.weight_decay : 0.0;
      constants.count = part_updates_[range.part];
      adamw_ema(slice(role_.master()), slice(role_.grad()), slice(exp_avg_), slice(exp_avg_sq_),
                average, constants);
    } else if (is_averaged) {
      average.lerp_(slice(role_.master()), constants.average_weight);
    }
  }
  ++updates_;
  if (is_averaged) {
    ++averaged_updates_;
  } else if (ema.has_value()) {
    role_.reset_average();
  }
}

void RoleOptimizer::clear_grad() { role_.clear_grad(); }

double ema_decay(const EmaSpec& spec, int64_t n) {
  const auto count = static_cast<double>(n);
  switch (spec.warmup) {
    case EmaWarmup::kRatio:
      return std::min(spec.decay, (1.0 + count) / (10.0 + count));
    case EmaWarmup::kPower:
      return std::min(spec.decay, 1.0 - std::pow(1.0 + count, -2.0 / 3.0));
    case EmaWarmup::kRamp:
      return n <= spec.flat_steps
                 ? spec.initial_decay
                 : std::min(static_cast<double>(n - spec.flat_steps) * spec.ramp, spec.decay);
    case EmaWarmup::kConstant:
      break;
  }
  return spec.decay;
}

}  // namespace limbeck
