// SPDX-License-Identifier: Apache-2.0
// The host's fused operators: what a transformer block does between its products, each in one pass
// over memory with a backward of its own. Differentiable, also twice; on any device and dtype.
//
// x and y are [b, S, D]. shift, scale and gate are [b, D], [b, g, D] (token i uses row i g / S) or
// [D]. Where they are of a wider dtype than x, arithmetic runs in theirs and is rounded once.
// Wrong shapes throw StatusError.
#pragma once

#include <cstdint>
#include <utility>

#include <limbeck/tensor.hpp>

namespace lb {
inline namespace v1 LB_HIDDEN {

// LayerNorm over D without weights, then times (1 + scale) plus shift.
inline Tensor modulated_norm(const Tensor& x,
                             const Tensor& shift,
                             const Tensor& scale,
                             double eps) {
  static const Op op("limbeck::modulated_norm");
  return op({x, shift, scale, eps});
}

// x + y gate.
inline Tensor gated_residual(const Tensor& x, const Tensor& y, const Tensor& gate) {
  static const Op op("limbeck::gated_residual");
  return op({x, y, gate});
}

// z = x + y gate (an undefined gate: x + y), and LayerNorm(z) times scale plus shift; with
// `plus_one` times (1 + scale). Returns z and the norm.
inline std::pair<Tensor, Tensor> residual_norm(const Tensor& x,
                                               const Tensor& y,
                                               const Tensor& gate,
                                               const Tensor& shift,
                                               const Tensor& scale,
                                               bool plus_one,
                                               double eps) {
  static const Op op("limbeck::residual_norm");
  auto both = op.many({x, y, gate, shift, scale, plus_one, eps}, 2);
  return {std::move(both[0]), std::move(both[1])};
}

// [b, S, D] -> [b, S, heads, D / heads]: RMSNorm over D with weight [D], then neighbouring channels
// of each head are turned by the token's angles, table [S, D / heads / 2, 2] of cosines and sines.
// An undefined table: no rotation.
inline Tensor rms_norm_rope(
    const Tensor& x, const Tensor& weight, const Tensor& table, int64_t heads, double eps) {
  static const Op op("limbeck::rms_norm_rope");
  return op({x, weight, table, heads, eps});
}

}  // namespace v1
}  // namespace lb
