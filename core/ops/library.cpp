// SPDX-License-Identifier: Apache-2.0
// The operators by which plugins and libtorch know fused.hpp, and, with an underscore, the halves
// that devices implement (devices.hpp).
#include <torch/library.h>

#include "core/ops/fused.hpp"

TORCH_LIBRARY(limbeck, library) {
  library.def("modulated_norm(Tensor x, Tensor shift, Tensor scale, float eps) -> Tensor",
              limbeck::modulated_norm);
  library.def("gated_residual(Tensor x, Tensor y, Tensor? gate) -> Tensor",
              limbeck::gated_residual);
  library.def(
      "residual_norm(Tensor x, Tensor y, Tensor? gate, Tensor shift, Tensor scale, bool plus_one, "
      "float eps) -> (Tensor z, Tensor u)",
      limbeck::residual_norm);
  library.def(
      "rms_norm_rope(Tensor x, Tensor weight, Tensor? table, int heads, float eps) -> Tensor",
      limbeck::rms_norm_rope);
  library.def("gelu_tanh(Tensor x) -> Tensor", limbeck::gelu_tanh);

  library.def(
      "_residual_norm_forward(Tensor x, Tensor? y, Tensor? gate, Tensor? shift, Tensor? scale, "
      "bool plus_one, float eps) -> (Tensor z, Tensor u, Tensor statistics)");
  library.def(
      "_residual_norm_backward(Tensor? grad_z, Tensor? grad_u, Tensor? z, Tensor? y, Tensor? gate, "
      "Tensor? scale, Tensor? statistics, bool plus_one) -> (Tensor grad_x, Tensor grad_y, "
      "Tensor grad_gate, Tensor grad_shift, Tensor grad_scale)");
  library.def(
      "_rms_norm_rope_forward(Tensor x, Tensor weight, Tensor? table, int heads, float eps) -> "
      "(Tensor y, Tensor rstd)");
  library.def(
      "_rms_norm_rope_backward(Tensor grad_y, Tensor x, Tensor weight, Tensor? table, "
      "Tensor rstd, int heads) -> (Tensor grad_x, Tensor grad_weight)");
  library.def("_gelu_tanh_forward(Tensor x) -> Tensor");
  library.def("_gelu_tanh_backward(Tensor grad_y, Tensor x) -> Tensor");
  library.def(
      "_adamw_ema(Tensor(a!) param, Tensor grad, Tensor(b!) exp_avg, Tensor(c!) exp_avg_sq, "
      "Tensor(d!)? average, float grad_scale, float lr, float beta1, float beta2, "
      "float weight_decay, float eps, int count, float average_weight) -> ()");
}
