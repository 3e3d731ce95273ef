// SPDX-License-Identifier: Apache-2.0
// The host's own attention: what an lb_attend means, on plain tensors.
// Shapes: b batch, t query tokens, s key tokens, h heads, d head size.
#pragma once

#include <ATen/ATen.h>

#include <limbeck/abi.h>

namespace limbeck {

// softmax(scale q k^T, masked) v for q [b, t, h, d], k and v [b, s, h, d]; returns [b, t, h, d],
// differentiable. Throws c10::Error for operands that do not fit each other or `spec`. [compute]
at::Tensor attend(const lb_attend& spec,
                  const at::Tensor& q,
                  const at::Tensor& k,
                  const at::Tensor& v);

// Which keys each query sees under LB_ATTEND_BLOCKS or LB_ATTEND_TEACHER: bool [t, s], true where
// seen. Undefined for LB_ATTEND_FULL. `queries` and `keys` are token counts.
at::Tensor pattern_mask(const lb_attend& spec, int64_t queries, int64_t keys);

}  // namespace limbeck
