// SPDX-License-Identifier: Apache-2.0
// The halves of the fused operators that a device implements: forward and backward without a graph.
// library.cpp defines them as `limbeck::_NAME`; whoever knows a device registers them for its
// dispatch key, all of a pair or none. Those of the meta device are in meta.cpp. The loops of the
// CPU are called directly.
//
// What an implementation takes: `values` (x, y, z and their gradients) of one type, fp32, bf16 or
// fp16; rows, weights and tables of that type or fp32. It computes in fp32 and rounds each result
// once. Strides are any. Shapes are those of fused.hpp, already checked.
#pragma once

#include <optional>
#include <tuple>

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

namespace limbeck::devices {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// z = x + y gate if there is a y, else z = x and the first result is undefined; u = LayerNorm(z)
// times (1 + scale), or times scale, plus shift, undefined without scale. Returns z, u and what
// backward needs of the rows: their means and inverse deviations, fp32 [2, rows], with u.
using NormForward = std::tuple<Tensor, Tensor, Tensor>(const Tensor& x,
                                                       const OptionalTensor& y,
                                                       const OptionalTensor& gate,
                                                       const OptionalTensor& shift,
                                                       const OptionalTensor& scale,
                                                       bool plus_one,
                                                       double eps);
const c10::TypedOperatorHandle<NormForward>& norm_forward();

// From the gradients of z and of u, one of which may be missing: those of x, y (with gate), gate,
// shift and scale; undefined where there is no such operand. z, scale and statistics come with
// grad_u; y with gate.
using NormBackward =
    std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>(const OptionalTensor& grad_z,
                                                       const OptionalTensor& grad_u,
                                                       const OptionalTensor& z,
                                                       const OptionalTensor& y,
                                                       const OptionalTensor& gate,
                                                       const OptionalTensor& scale,
                                                       const OptionalTensor& statistics,
                                                       bool plus_one);
const c10::TypedOperatorHandle<NormBackward>& norm_backward();

// Returns y [b, S, heads, D / heads] and 1 / sqrt(mean square + eps) of each row, fp32 [rows].
using RmsForward = std::tuple<Tensor, Tensor>(
    const Tensor& x, const Tensor& weight, const OptionalTensor& table, int64_t heads, double eps);
const c10::TypedOperatorHandle<RmsForward>& rms_forward();

// The gradients of x and weight.
using RmsBackward = std::tuple<Tensor, Tensor>(const Tensor& grad_y,
                                               const Tensor& x,
                                               const Tensor& weight,
                                               const OptionalTensor& table,
                                               const Tensor& rstd,
                                               int64_t heads);
const c10::TypedOperatorHandle<RmsBackward>& rms_backward();

using GeluForward = Tensor(const Tensor& x);
const c10::TypedOperatorHandle<GeluForward>& gelu_forward();
using GeluBackward = Tensor(const Tensor& grad_y, const Tensor& x);
const c10::TypedOperatorHandle<GeluBackward>& gelu_backward();

// adamw_ema() of adamw.hpp, fp32 alone.
using AdamW = void(const Tensor& param,
                   const Tensor& grad,
                   const Tensor& exp_avg,
                   const Tensor& exp_avg_sq,
                   const OptionalTensor& average,
                   double grad_scale,
                   double lr,
                   double beta1,
                   double beta2,
                   double weight_decay,
                   double eps,
                   int64_t count,
                   double average_weight);
const c10::TypedOperatorHandle<AdamW>& adamw();

// Whether the device of `values` has `half` of an operator, for tensors of these types. Undefined
// tensors are absent ones. The meta device, where runs are rehearsed, has what the CPU has loops
// for. [any]
bool has(const c10::OperatorHandle& half, at::TensorList values, at::TensorList rows);

// nullopt for an undefined tensor.
inline OptionalTensor maybe(const Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
}

}  // namespace limbeck::devices
