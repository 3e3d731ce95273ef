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

struct NormForward {
  Type type = Type::kFloat;
  int64_t rows = 0;
  int64_t width = 0;
  float eps = 0;
  const void* x = nullptr;      // [rows, width]
  const void* y = nullptr;      // [rows, width] or null
  const float* gate = nullptr;  // by gate_groups; null: 1
  Groups gate_groups;
  void* z = nullptr;  // [rows, width], with y
  float base = 1;
  const float* scale = nullptr;  // by scale_groups
  const float* shift = nullptr;  // by shift_groups
  Groups scale_groups;
  Groups shift_groups;
  void* u = nullptr;      // [rows, width] or null: z alone
  float* mean = nullptr;  // [rows], with u
  float* rstd = nullptr;  // [rows], with u
};
cudaError_t norm_forward(const NormForward& args, cudaStream_t stream);

// The gradients of each row by itself; those of gate, scale and shift are sums below.
struct NormBackward {
  Type type = Type::kFloat;
  int64_t rows = 0;
  int64_t width = 0;
  const void* z = nullptr;  // with grad_u
  const float* mean = nullptr;
  const float* rstd = nullptr;
  const void* grad_u = nullptr;  // null: only the sum x + y gate is differentiated
  const void* grad_z = nullptr;  // null: none from elsewhere
  float base = 1;
  const float* scale = nullptr;
  Groups scale_groups;
  void* grad_x = nullptr;       // with grad_u: the whole gradient of z; may be grad_z
  const float* gate = nullptr;  // null: no grad_y
  Groups gate_groups;
  void* grad_y = nullptr;
};
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

struct RmsForward {
  Type type = Type::kFloat;
  int64_t rows = 0;
  int64_t width = 0;
  int64_t head = 0;
  int64_t tokens = 1;
  int64_t x_stride = 0;  // from row to row of x
  float eps = 0;
  const void* x = nullptr;
  const float* weight = nullptr;  // [width]
  const float* table = nullptr;   // [tokens, head / 2, 2] or null: no rotation; then head is even
  void* y = nullptr;              // [rows, width]
  float* rstd = nullptr;          // [rows]
};
cudaError_t rms_forward(const RmsForward& args, cudaStream_t stream);

struct RmsBackward {
  Type type = Type::kFloat;
  int64_t rows = 0;
  int64_t width = 0;
  int64_t head = 0;
  int64_t tokens = 1;
  int64_t x_stride = 0;
  const void* x = nullptr;
  const float* weight = nullptr;
  const float* table = nullptr;
  const float* rstd = nullptr;
  const void* grad_y = nullptr;  // [rows, width]
  void* grad_x = nullptr;        // [rows, width]
  float* grad_weight = nullptr;  // [width]
  float* scratch = nullptr;      // for one sum over one group of all rows
};
cudaError_t rms_backward(const RmsBackward& args, cudaStream_t stream);

// Of `count` elements.
cudaError_t gelu_forward(Type type, const void* x, void* y, int64_t count, cudaStream_t stream);
cudaError_t gelu_backward(
    Type type, const void* x, const void* grad_y, void* grad_x, int64_t count, cudaStream_t stream);
cudaError_t adamw(const kernels::AdamW<float>& args, int64_t count, cudaStream_t stream);

}  // namespace limbeck::cuda
