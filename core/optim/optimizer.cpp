// SPDX-License-Identifier: Apache-2.0
#include "core/optim/optimizer.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/ops/_fused_adamw.h>

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
      exp_avg_sq_(at::zeros_like(role.master())) {
  for (size_t i = 0; i < role.layout().trained.size(); ++i) {
    part_steps_.push_back(at::zeros({}, at::kFloat));
  }
}

double RoleOptimizer::learning_rate() const {
  const auto& spec = role_.spec().optimizer;
  return spec.learning_rate * lr_multiplier(spec, updates_, horizon_);
}

double RoleOptimizer::grad_norm() const {
  role_.settle_grad();
  return std::sqrt(squared_norm(role_.grad()));
}

void RoleOptimizer::clip(double norm, double max_norm) {
  const double scale = max_norm / (norm + kClipEps);
  if (scale < 1.0) {
    const at::NoGradGuard no_grad;
    role_.grad().mul_(scale);
  }
}

void RoleOptimizer::update(int64_t step) {
  const at::NoGradGuard no_grad;
  const auto& spec = role_.spec().optimizer;
  const auto& ranges = role_.layout().trained;
  const double lr = learning_rate();
  for (size_t i = 0; i < ranges.size(); ++i) {
    const auto& range = ranges[i];
    if (!role_.is_touched(range.part)) {
      continue;
    }
    const auto slice = [&](const at::Tensor& flat) {
      return flat.narrow(0, range.offset, range.size);
    };
    part_steps_[i].add_(1);
    // The buffers are contiguous: the fused kernel reads wrong elements of others without a word.
    at::_fused_adamw_({slice(role_.master())}, {slice(role_.grad())}, {slice(exp_avg_)},
                      {slice(exp_avg_sq_)}, {}, {part_steps_[i]}, lr, spec.beta1, spec.beta2,
                      range.is_decayed ? spec.weight_decay : 0.0, spec.eps, false, false);
  }
  ++updates_;
  update_average(step);
}

void RoleOptimizer::update_average(int64_t step) {
  const auto& ema = role_.spec().ema;
  if (!ema.has_value()) {
    return;
  }
  if (step < ema->start_step) {
    role_.reset_average();
    return;
  }
  ++averaged_updates_;
  role_.average().lerp_(role_.master(), 1.0 - ema_decay(*ema, averaged_updates_));
}

void RoleOptimizer::clear_grad() { role_.clear_grad(); }

double ema_decay(const EmaSpec& spec, int64_t n) {
  const auto count = static_cast<double>(n);
  switch (spec.warmup) {
    case EmaWarmup::kRatio:
      return std::min(spec.decay, (1.0 + count) / (10.0 + count));
    case EmaWarmup::kPower:
      return std::min(spec.decay, 1.0 - std::pow(1.0 + count, -2.0 / 3.0));
    case EmaWarmup::kConstant:
      break;
  }
  return spec.decay;
}

}  // namespace limbeck
