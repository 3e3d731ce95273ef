// SPDX-License-Identifier: Apache-2.0
// The fused operators on CUDA devices. No libtorch here: device pointers, sizes, strides in
// elements. Each function queues kernels on `stream` of the current device and returns at once with
// what the launch said. The same maths as core/ops/kernels, whose comments have the formulas.
//
// Values are fp32, bf16 or fp16 as `type` says; rows, weights, tables, statistics and sums are
// fp32, and so is all arithmetic; each result is rounded once. Buffers do not overlap unless said.
// Equal inputs give equal bits: sums run in a fixed order, without atomic additions.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "core/ops/kernels/kernels.hpp"

namespace limbeck::cuda {

using kernels::Groups;

enum class Type { kFloat, kBFloat16, kHalf };

// Their arguments, `rows` rows of values of a type.
template <class Args>
struct Rows : Args {
  Type type = Type::kFloat;
  int64_t rows = 0;
};

using NormForward = Rows<kernels::NormForward<void, float>>;
cudaError_t norm_forward(const NormForward& args, cudaStream_t stream);

// The gradients of each row by itself, grad_x (with grad_u) and grad_y (with gate); those of gate,
// scale and shift are sums below.
using NormBackward = Rows<kernels::NormBackward<void, float>>;
cudaError_t norm_backward(const NormBackward& args, cudaStream_t stream);

// Sums over the rows of each of `groups` groups of `group_rows` neighbouring rows.
struct Columns {
  int64_t groups = 1;
  int64_t group_rows = 1;
  int64_t width = 0;
  float* scratch = nullptr;  // [scratch_size()]
};
// Elements of scratch for `sums` sums of each column.
int64_t scratch_size(const Columns& columns, int64_t sums);

struct NormSums {
  Type type = Type::kFloat;
  Columns columns;
  const void* z = nullptr;
  const float* mean = nullptr;
  const float* rstd = nullptr;
  const void* grad_u = nullptr;
  float* grad_scale = nullptr;  // [groups, width]
  float* grad_shift = nullptr;  // [groups, width]
};
// Two sums.
cudaError_t norm_sums(const NormSums& args, cudaStream_t stream);

struct GateSums {
  Type type = Type::kFloat;
  Columns columns;
  const void* grad_z = nullptr;
  const void* y = nullptr;
  float* grad_gate = nullptr;  // [groups, width]
};
// One sum.
cudaError_t gate_sums(const GateSums& args, cudaStream_t stream);

using RmsForward = Rows<kernels::RmsForward<void, float>>;
cudaError_t rms_forward(const RmsForward& args, cudaStream_t stream);

// grad_weight is written, not added to; scratch is for one sum over one group of all rows.
using RmsBackward = Rows<kernels::RmsBackward<void, float>>;
cudaError_t rms_backward(const RmsBackward& args, cudaStream_t stream);

// Of `count` elements.
cudaError_t gelu_forward(Type type, const void* x, void* y, int64_t count, cudaStream_t stream);
cudaError_t gelu_backward(
    Type type, const void* x, const void* grad_y, void* grad_x, int64_t count, cudaStream_t stream);
cudaError_t adamw(const kernels::AdamW<float>& args, int64_t count, cudaStream_t stream);

}  // namespace limbeck::cuda
