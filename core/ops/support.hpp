// SPDX-License-Identifier: Apache-2.0
// When an operator has loops of its own.
#pragma once

#include <ATen/ATen.h>

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

}  // namespace limbeck
