// SPDX-License-Identifier: Apache-2.0
// The operators by which plugins and libtorch know fused.hpp.
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
}
