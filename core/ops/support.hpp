// SPDX-License-Identifier: Apache-2.0
// When an operator has loops of its own, and how tensors lie that loops read.
#pragma once

#include <ATen/ATen.h>

#include "core/ops/kernels/kernels.hpp"

namespace limbeck {

// All defined tensors of the list are on the CPU and of one type, fp32 or fp64.
inline bool has_loops(at::TensorList tensors) {
  const auto type = tensors[0].scalar_type();
  if (type != at::kFloat && type != at::kDouble) {
    return false;
  }
  for (const auto& tensor : tensors) {
    if (tensor.defined() && (!tensor.is_cpu() || tensor.scalar_type() != type)) {
      return false;
    }
  }
  return true;
}

// `tensor`, or a copy whose last dimension lies densely.
inline at::Tensor with_dense_rows(const at::Tensor& tensor) {
  return tensor.stride(-1) == 1 || tensor.size(-1) == 1 ? tensor : tensor.contiguous();
}

// x [b, S, D], or a copy, whose b S rows lie densely and at equal distances, x.stride(1): a slice
// of a wider product need not be copied.
inline at::Tensor with_even_rows(const at::Tensor& x) {
  return x.stride(2) == 1 && x.stride(0) == x.size(1) * x.stride(1) ? x : x.contiguous();
}

// Where the tokens of [b, tokens, D] find theirs of `rows`: one row [D] for all, or rows [b, D] or
// [b, g, D].
inline kernels::Groups row_groups(const at::Tensor& rows, int64_t tokens) {
  kernels::Groups groups;
  groups.tokens = tokens;
  groups.per_group = tokens;
  if (rows.dim() >= 2) {
    groups.batch_stride = rows.stride(0);
  }
  if (rows.dim() == 3) {
    groups.per_group = tokens / rows.size(1);
    groups.group_stride = rows.stride(1);
  }
  return groups;
}

}  // namespace limbeck
