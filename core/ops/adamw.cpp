// SPDX-License-Identifier: Apache-2.0
#include "core/ops/adamw.hpp"

#include <ATen/Dispatch.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_fused_adamw.h>

#include "core/ops/devices.hpp"
#include "core/ops/kernels/kernels.hpp"
#include "core/ops/parallel.hpp"
#include "core/ops/support.hpp"

namespace limbeck {
namespace {

// For devices without an implementation of ours.
void composite_update(const at::Tensor& param,
                      const at::Tensor& grad,
                      const at::Tensor& exp_avg,
                      const at::Tensor& exp_avg_sq,
                      const AdamWConstants& c) {
  const auto count = at::full({}, static_cast<double>(c.count), param.options().dtype(at::kFloat));
  at::_fused_adamw_({param}, {grad * c.grad_scale}, {exp_avg}, {exp_avg_sq}, {}, {count}, c.lr,
                    c.beta1, c.beta2, c.weight_decay, c.eps, false, false);
}

void loop_update(const at::Tensor& param,
                 const at::Tensor& grad,
                 const at::Tensor& exp_avg,
                 const at::Tensor& exp_avg_sq,
                 const at::Tensor& average,
                 const AdamWConstants& c) {
  AT_DISPATCH_FLOATING_TYPES(param.scalar_type(), "adamw_ema", [&] {
    auto args = loop_constants<scalar_t>(c);
    args.param = param.mutable_data_ptr<scalar_t>();
    args.grad = grad.const_data_ptr<scalar_t>();
    args.exp_avg = exp_avg.mutable_data_ptr<scalar_t>();
    args.exp_avg_sq = exp_avg_sq.mutable_data_ptr<scalar_t>();
    args.average = average.defined() ? average.mutable_data_ptr<scalar_t>() : nullptr;
    const auto& loops = kernels::kernels<scalar_t>();
    over_rows(param.numel(), 1, [&](int64_t begin, int64_t end) { loops.adamw(args, begin, end); });
  });
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
  if (has_loops({param, grad, exp_avg, exp_avg_sq, average})) {
    loop_update(param, grad, exp_avg, exp_avg_sq, average, c);
  } else if (devices::has(devices::adamw(), {param, grad, exp_avg, exp_avg_sq, average}, {}) &&
             !at::isReducedFloatingType(param.scalar_type())) {
    const at::AutoDispatchBelowADInplaceOrView below;
    devices::adamw().call(param, grad, exp_avg, exp_avg_sq, devices::maybe(average), c.grad_scale,
                          c.lr, c.beta1, c.beta2, c.weight_decay, c.eps, c.count, c.average_weight);
  } else {
    composite_update(param, grad, exp_avg, exp_avg_sq, c);
    if (average.defined()) {
      average.lerp_(param, c.average_weight);
    }
    return;
  }
  // In-place changes behind autograd's back would go unnoticed by a graph that is still alive.
  for (const auto* tensor : {&param, &exp_avg, &exp_avg_sq, &average}) {
    if (tensor->defined()) {
      tensor->unsafeGetTensorImpl()->bump_version();
    }
  }
}

}  // namespace limbeck
