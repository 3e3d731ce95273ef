// SPDX-License-Identifier: Apache-2.0
// x W^T + b, whose weight gradient goes straight into the flat gradient buffer.
#pragma once

#include <optional>

#include <ATen/ATen.h>

namespace limbeck {

// Where the gradient of one weight is accumulated. Owned by the role; outlives every graph that
// is differentiated.
struct GradSlot {
  at::Tensor grad;       // of the weight's shape, a contiguous view of the flat gradient
  bool is_fresh = true;  // nothing was accumulated since the buffer was cleared: what is in `grad`
                         // does not count
  bool* touched = nullptr;  // of the weight's part: a gradient arrived
};

// x [..., in], weight [out, in], bias [out] or none; differentiable. With a slot, backward adds
// the weight's gradient to it and gives autograd none; without one it returns the same numbers, so
// that both ways give equal bits. [compute]
at::Tensor linear(const at::Tensor& x,
                  const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias,
                  GradSlot* slot);

}  // namespace limbeck
