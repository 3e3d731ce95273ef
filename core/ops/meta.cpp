// SPDX-License-Identifier: Apache-2.0
// The fused operators where tensors have shapes and no contents: results as the loops of the CPU
// would allocate them.
#include <torch/library.h>

#include "core/ops/devices.hpp"

namespace limbeck::devices {
namespace {

Tensor like(const OptionalTensor& tensor, bool is_wanted = true) {
  return is_wanted && tensor.has_value() ? at::empty(tensor->sizes(), tensor->options()) : Tensor();
}

std::tuple<Tensor, Tensor, Tensor> norm_forward_shapes(const Tensor& x,
                                                       const OptionalTensor& y,
                                                       const OptionalTensor& /*gate*/,
                                                       const OptionalTensor& /*shift*/,
                                                       const OptionalTensor& scale,
                                                       bool /*plus_one*/,
                                                       double /*eps*/) {
  const bool is_normed = scale.has_value();
  return {like(x, y.has_value()), like(x, is_normed),
          is_normed ? at::empty({2, x.size(0) * x.size(1)}, x.options()) : Tensor()};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> norm_backward_shapes(
    const OptionalTensor& grad_z,
    const OptionalTensor& grad_u,
    const OptionalTensor& /*z*/,
    const OptionalTensor& y,
    const OptionalTensor& gate,
    const OptionalTensor& scale,
    const OptionalTensor& /*statistics*/,
    bool /*plus_one*/) {
  const bool is_normed = grad_u.has_value();
  return {is_normed ? like(grad_u) : *grad_z, like(y, gate.has_value()), like(gate),
          like(scale, is_normed), like(scale, is_normed)};
}

std::tuple<Tensor, Tensor> rms_forward_shapes(const Tensor& x,
                                              const Tensor& /*weight*/,
                                              const OptionalTensor& /*table*/,
                                              int64_t heads,
                                              double /*eps*/) {
  return {at::empty({x.size(0), x.size(1), heads, x.size(2) / heads}, x.options()),
          at::empty({x.size(0) * x.size(1)}, x.options())};
}

std::tuple<Tensor, Tensor> rms_backward_shapes(const Tensor& /*grad_y*/,
                                               const Tensor& x,
                                               const Tensor& weight,
                                               const OptionalTensor& /*table*/,
                                               const Tensor& /*rstd*/,
                                               int64_t /*heads*/) {
  return {like(x), like(weight)};
}

Tensor gelu_forward_shape(const Tensor& x) { return like(x); }
Tensor gelu_backward_shape(const Tensor& /*grad_y*/, const Tensor& x) { return like(x); }

void adamw_shapes(const Tensor& /*param*/,
                  const Tensor& /*grad*/,
                  const Tensor& /*exp_avg*/,
                  const Tensor& /*exp_avg_sq*/,
                  const OptionalTensor& /*average*/,
                  double /*grad_scale*/,
                  double /*lr*/,
                  double /*beta1*/,
                  double /*beta2*/,
                  double /*weight_decay*/,
                  double /*eps*/,
                  int64_t /*count*/,
                  double /*average_weight*/) {}

TORCH_LIBRARY_IMPL(limbeck, Meta, library) {
  library.impl("_residual_norm_forward", norm_forward_shapes);
  library.impl("_residual_norm_backward", norm_backward_shapes);
  library.impl("_rms_norm_rope_forward", rms_forward_shapes);
  library.impl("_rms_norm_rope_backward", rms_backward_shapes);
  library.impl("_gelu_tanh_forward", gelu_forward_shape);
  library.impl("_gelu_tanh_backward", gelu_backward_shape);
  library.impl("_adamw_ema", adamw_shapes);
}

}  // namespace
}  // namespace limbeck::devices
