// SPDX-License-Identifier: Apache-2.0
#include "core/ops/adamw.hpp"

#include <cmath>

#include <ATen/Dispatch.h>
#include <ATen/ops/_fused_adamw.h>

#include "core/ops/kernels/kernels.hpp"
#include "core/ops/parallel.hpp"
#include "core/ops/support.hpp"

namespace limbeck {
namespace {

// For devices without loops of our own.
void composite_update(const at::Tensor& param,
                      const at::Tensor& grad,
                      const at::Tensor& exp_avg,
                      const at::Tensor& exp_avg_sq,
                      const AdamWConstants& c) {
  const auto count = at::full({}, static_cast<double>(c.count), param.options().dtype(at::kFloat));
  at::_fused_adamw_({param}, {grad * c.grad_scale}, {exp_avg}, {exp_avg_sq}, {}, {count}, c.lr,
                    c.beta1, c.beta2, c.weight_decay, c.eps, false, false);
}

}  // namespace

void adamw_ema(const at::Tensor& param,
               const at::Tensor& grad,
               const at::Tensor& exp_avg,
               const at::Tensor& exp_avg_sq,
               const at::Tensor& average,
               const AdamWConstants& c) {
  const at::NoGradGuard no_grad;
  for (const auto* tensor : {&grad, &exp_avg, &exp_avg_sq, &average}) {
    TORCH_CHECK(!tensor->defined() || (tensor->is_contiguous() && tensor->numel() == param.numel()),
                "adamw_ema() needs contiguous buffers of one size");
  }
  if (!has_loops({param, grad, exp_avg, exp_avg_sq, average})) {
    composite_update(param, grad, exp_avg, exp_avg_sq, c);
    if (average.defined()) {
      average.lerp_(param, c.average_weight);
    }
    return;
  }
  AT_DISPATCH_FLOATING_TYPES(param.scalar_type(), "adamw_ema", [&] {
    const auto as = [](double value) { return static_cast<scalar_t>(value); };
    const auto count = static_cast<double>(c.count);
    kernels::AdamW<scalar_t> args;
    args.param = param.mutable_data_ptr<scalar_t>();
    args.grad = grad.const_data_ptr<scalar_t>();
    args.exp_avg = exp_avg.mutable_data_ptr<scalar_t>();
    args.exp_avg_sq = exp_avg_sq.mutable_data_ptr<scalar_t>();
    args.average = average.defined() ? average.mutable_data_ptr<scalar_t>() : nullptr;
    args.scale = as(c.grad_scale);
    args.beta1 = as(c.beta1);
    args.beta2 = as(c.beta2);
    args.rest1 = as(1 - c.beta1);
    args.rest2 = as(1 - c.beta2);
    args.keep = as(1 - c.lr * c.weight_decay);
    args.step = as(c.lr / (1 - std::pow(c.beta1, count)));
    args.inverse_root = as(1 / std::sqrt(1 - std::pow(c.beta2, count)));
    args.eps = as(c.eps);
    args.average_weight = as(c.average_weight);
    const auto& loops = kernels::kernels<scalar_t>();
    over_rows(param.numel(), 1, [&](int64_t begin, int64_t end) { loops.adamw(args, begin, end); });
  });
  // In-place changes behind autograd's back would go unnoticed by a graph that is still alive.
  for (const auto* tensor : {&param, &exp_avg, &exp_avg_sq, &average}) {
    if (tensor->defined()) {
      tensor->unsafeGetTensorImpl()->bump_version();
    }
  }
}

}  // namespace limbeck
