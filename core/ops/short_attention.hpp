// SPDX-License-Identifier: Apache-2.0
// Attention for sequences so short that keeping the whole matrix of weights is cheaper than
// computing it again: two products and a softmax per head.
#pragma once

#include <ATen/ATen.h>

namespace limbeck {

// Whether short_attention() takes these operands: on the CPU, fp32 or fp64, at most 65536 weights
// a head.
bool is_short_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// softmax(scale q k^T) v by head; q [b, t, h, d], k and v [b, s, h, d] -> [b, t, h, d].
// Differentiable, also twice. [compute]
at::Tensor short_attention(const at::Tensor& q,
                           const at::Tensor& k,
                           const at::Tensor& v,
                           double scale);

}  // namespace limbeck
