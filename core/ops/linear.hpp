// SPDX-License-Identifier: Apache-2.0
// x W^T + b, whose parameter gradients go straight into the flat gradient buffer.
#pragma once

#include <optional>

#include <ATen/ATen.h>

namespace limbeck {

// Where the gradient of one parameter is accumulated. Owned by the role; outlives every graph that
// is differentiated.
struct GradSlot {
  at::Tensor grad;  // of the parameter's shape, a contiguous view of the flat gradient
  // Nobody else adds to `grad`, so the first product may replace what is there.
  bool is_exclusive = false;
  bool is_fresh = false;    // exclusive, and nothing was accumulated since the buffer was cleared:
                            // what is in `grad` does not count
  bool* touched = nullptr;  // of the parameter's part: a gradient arrived
};

// x [..., in], weight [out, in], bias [out] or none; differentiable. With a slot, backward adds
// the parameter's gradient to it and gives autograd none; without one it returns it. [compute]
at::Tensor linear(const at::Tensor& x,
                  const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias,
                  GradSlot* weight_slot,
                  GradSlot* bias_slot);

}  // namespace limbeck
