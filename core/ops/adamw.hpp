// SPDX-License-Identifier: Apache-2.0
// One pass over flat memory: clipping, AdamW and the moving average.
#pragma once

#include <cmath>
#include <cstdint>

#include <ATen/ATen.h>

#include "core/ops/kernels/kernels.hpp"

namespace limbeck {

// The constants of one update, see core/optim/optimizer.hpp.
struct AdamWConstants {
  double grad_scale = 1;
  double lr = 0;
  double beta1 = 0;
  double beta2 = 0;
  double weight_decay = 0;
  double eps = 0;
  int64_t count = 1;          // k: updates including this one
  double average_weight = 0;  // 1 - decay of the moving average
};

// As loops take them: computed in double precision, rounded once. Without buffers.
template <class T>
kernels::AdamW<T> loop_constants(const AdamWConstants& c) {
  const auto as = [](double value) { return static_cast<T>(value); };
  const auto count = static_cast<double>(c.count);
  kernels::AdamW<T> args;
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
  return args;
}

// Updates `param` and its moments from grad * grad_scale, then
// average += average_weight (param - average) unless `average` is undefined. All are contiguous, of
// one size and of one type, fp32 or fp64. `grad` is not changed. [compute]
void adamw_ema(const at::Tensor& param,
               const at::Tensor& grad,
               const at::Tensor& exp_avg,
               const at::Tensor& exp_avg_sq,
               const at::Tensor& average,
               const AdamWConstants& constants);

}  // namespace limbeck
