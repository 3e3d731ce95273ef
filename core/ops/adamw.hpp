// SPDX-License-Identifier: Apache-2.0
// One pass over flat memory: clipping, AdamW and the moving average.
#pragma once

#include <cstdint>

#include <ATen/ATen.h>

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
