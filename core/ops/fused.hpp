// SPDX-License-Identifier: Apache-2.0
// The fused operators, which plugins reach as `limbeck::NAME` of the dispatcher (library.cpp has
// their schemas). Each is differentiable, also twice; computes what its `composite` formula of ATen
// operators computes up to rounding; and falls back on that formula where nothing computes it at
// once: on the CPU for 16-bit tensors, elsewhere as devices.hpp says. Arithmetic of 16-bit x and y
// runs in the dtype of scale, shift and gate and is rounded once. x and y are [b, S, D]. scale,
// shift and gate are [b, D], [b, g, D] (token i uses row i g / S) or [D]. Throw c10::Error for
// other shapes. [compute]
#pragma once

#include <optional>
#include <tuple>

#include <ATen/ATen.h>

namespace limbeck {

// LayerNorm over D without weights, then times (1 + scale) plus shift.
at::Tensor modulated_norm(const at::Tensor& x,
                          const at::Tensor& shift,
                          const at::Tensor& scale,
                          double eps);

// x + y gate; without gate x + y.
at::Tensor gated_residual(const at::Tensor& x,
                          const at::Tensor& y,
                          const std::optional<at::Tensor>& gate);

// z = x + y gate, and u = LayerNorm(z) times scale plus shift; with `plus_one` times (1 + scale).
std::tuple<at::Tensor, at::Tensor> residual_norm(const at::Tensor& x,
                                                 const at::Tensor& y,
                                                 const std::optional<at::Tensor>& gate,
                                                 const at::Tensor& shift,
                                                 const at::Tensor& scale,
                                                 bool plus_one,
                                                 double eps);

// x [b, S, D] -> [b, S, heads, D / heads]: RMSNorm over D with weight [D], then, with table
// [S, D / heads / 2, 2] of cosines and sines, neighbouring channels of each head are turned.
at::Tensor rms_norm_rope(const at::Tensor& x,
                         const at::Tensor& weight,
                         const std::optional<at::Tensor>& table,
                         int64_t heads,
                         double eps);

// x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), of any shape.
at::Tensor gelu_tanh(const at::Tensor& x);

}  // namespace limbeck
