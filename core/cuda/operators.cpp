// SPDX-License-Identifier: Apache-2.0
// What liblimbeck_cuda.so tells the dispatcher: the halves of the fused operators for CUDA tensors
// (core/ops/devices.hpp), on the current stream of their device.
#include <ATen/ATen.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include "core/cuda/kernels.hpp"
#include "core/ops/adamw.hpp"
#include "core/ops/support.hpp"

namespace limbeck::cuda {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Type type_of(const Tensor& values) {
  switch (values.scalar_type()) {
    case at::kFloat:
      return Type::kFloat;
    case at::kBFloat16:
      return Type::kBFloat16;
    case at::kHalf:
      return Type::kHalf;
    default:
      TORCH_CHECK(false, "no CUDA kernel for ", values.scalar_type());
  }
}

cudaStream_t stream() { return c10::cuda::getCurrentCUDAStream(); }

// fp32, its last dimension dense. Undefined for none.
Tensor wide_rows(const OptionalTensor& rows) {
  return rows.has_value() ? with_dense_rows(rows->to(at::kFloat)) : Tensor();
}
Tensor dense(const OptionalTensor& values) {
  return values.has_value() ? values->contiguous() : Tensor();
}

const void* read(const Tensor& values) {
  return values.defined() ? values.const_data_ptr() : nullptr;
}
void* write(const Tensor& values) { return values.defined() ? values.mutable_data_ptr() : nullptr; }
const float* read_floats(const Tensor& rows) {
  return rows.defined() ? rows.const_data_ptr<float>() : nullptr;
}

Tensor floats(at::IntArrayRef sizes, const Tensor& on) {
  return at::empty(sizes, on.options().dtype(at::kFloat));
}

// Sums for each of `rows`, [D], [b, D] or [b, g, D], over its tokens of [b, tokens, D].
Columns columns_of(const Tensor& rows, const Tensor& values) {
  Columns columns;
  columns.width = values.size(2);
  columns.groups = rows.numel() / std::max<int64_t>(1, columns.width);
  columns.group_rows = values.size(0) * values.size(1) / std::max<int64_t>(1, columns.groups);
  return columns;
}

// Queues `sums` with scratch memory; the allocator gives it away again in the order of the stream.
template <class Args>
void add_up(Args& args,
            int64_t n_sums,
            cudaError_t (*sums)(const Args&, cudaStream_t),
            const Tensor& on) {
  const Tensor scratch = floats({scratch_size(args.columns, n_sums)}, on);
  args.columns.scratch = scratch.mutable_data_ptr<float>();
  C10_CUDA_CHECK(sums(args, stream()));
}

std::tuple<Tensor, Tensor, Tensor> residual_norm_forward(const Tensor& x,
                                                         const OptionalTensor& y,
                                                         const OptionalTensor& gate,
                                                         const OptionalTensor& shift,
                                                         const OptionalTensor& scale,
                                                         bool plus_one,
                                                         double eps) {
  const c10::cuda::CUDAGuard guard(x.device());
  const auto dense_x = x.contiguous();
  const auto dense_y = dense(y);
  const auto gates = wide_rows(gate);
  const auto scales = wide_rows(scale);
  const auto shifts = wide_rows(shift);
  const auto tokens = x.size(1);
  NormForward args;
  args.type = type_of(x);
  args.rows = x.size(0) * tokens;
  args.width = x.size(2);
  args.eps = eps;
  args.x = read(dense_x);
  args.base = plus_one ? 1 : 0;
  Tensor z;
  if (dense_y.defined()) {
    z = at::empty_like(dense_x);
    args.y = read(dense_y);
    args.z = write(z);
  }
  if (gates.defined()) {
    args.gate = read_floats(gates);
    args.gate_groups = row_groups(gates, tokens);
  }
  Tensor u;
  Tensor statistics;
  if (scales.defined()) {
    u = at::empty_like(dense_x);
    statistics = floats({2, args.rows}, x);
    args.scale = read_floats(scales);
    args.shift = read_floats(shifts);
    args.scale_groups = row_groups(scales, tokens);
    args.shift_groups = row_groups(shifts, tokens);
    args.u = write(u);
    args.mean = statistics.mutable_data_ptr<float>();
    args.rstd = args.mean + args.rows;
  }
  C10_CUDA_CHECK(norm_forward(args, stream()));
  return {z, u, statistics};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> residual_norm_backward(
    const OptionalTensor& grad_z,
    const OptionalTensor& grad_u,
    const OptionalTensor& z,
    const OptionalTensor& y,
    const OptionalTensor& gate,
    const OptionalTensor& scale,
    const OptionalTensor& statistics,
    bool plus_one) {
  const bool is_normed = grad_u.has_value();
  const auto from_z = dense(grad_z);
  const auto from_u = dense(grad_u);
  const Tensor& like = is_normed ? from_u : from_z;
  const c10::cuda::CUDAGuard guard(like.device());
  const auto tokens = like.size(1);
  const auto gates = wide_rows(gate);
  NormBackward args;
  args.type = type_of(like);
  args.rows = like.size(0) * tokens;
  args.width = like.size(2);
  args.grad_z = read(from_z);
  args.base = plus_one ? 1 : 0;
  Tensor grad_x = from_z;
  Tensor grad_scale;
  Tensor grad_shift;
  const auto dense_z = is_normed ? dense(z) : Tensor();
  const auto scales = is_normed ? wide_rows(scale) : Tensor();
  if (is_normed) {
    grad_x = at::empty_like(like);
    args.z = read(dense_z);
    args.mean = read_floats(*statistics);
    args.rstd = args.mean + args.rows;
    args.grad_u = read(from_u);
    args.scale = read_floats(scales);
    args.scale_groups = row_groups(scales, tokens);
    args.grad_x = write(grad_x);
    grad_scale = floats(scale->sizes(), like);
    grad_shift = floats(scale->sizes(), like);
  }
  Tensor grad_y;
  Tensor grad_gate;
  if (gates.defined()) {
    grad_y = at::empty_like(like);
    grad_gate = floats(gate->sizes(), like);
    args.gate = read_floats(gates);
    args.gate_groups = row_groups(gates, tokens);
    args.grad_y = write(grad_y);
  }
  C10_CUDA_CHECK(norm_backward(args, stream()));
  if (is_normed) {
    NormSums sums;
    sums.type = args.type;
    sums.columns = columns_of(scales, like);
    sums.z = args.z;
    sums.mean = args.mean;
    sums.rstd = args.rstd;
    sums.grad_u = args.grad_u;
    sums.grad_scale = grad_scale.mutable_data_ptr<float>();
    sums.grad_shift = grad_shift.mutable_data_ptr<float>();
    add_up(sums, 2, norm_sums, like);
    grad_scale = grad_scale.to(scale->scalar_type());
    grad_shift = grad_shift.to(scale->scalar_type());
  }
  if (gates.defined()) {
    const auto dense_y = dense(y);
    GateSums of_gate;
    of_gate.type = args.type;
    of_gate.columns = columns_of(gates, like);
    of_gate.grad_z = read(grad_x);
    of_gate.y = read(dense_y);
    of_gate.grad_gate = grad_gate.mutable_data_ptr<float>();
    add_up(of_gate, 1, gate_sums, like);
    grad_gate = grad_gate.to(gate->scalar_type());
  }
  return {grad_x, grad_y, grad_gate, grad_shift, grad_scale};
}

std::tuple<Tensor, Tensor> rms_norm_rope_forward(
    const Tensor& x, const Tensor& weight, const OptionalTensor& table, int64_t heads, double eps) {
  const c10::cuda::CUDAGuard guard(x.device());
  const auto even_x = with_even_rows(x);
  const auto weights = weight.to(at::kFloat).contiguous();
  const auto turns = table.has_value() ? table->to(at::kFloat).contiguous() : Tensor();
  RmsForward args;
  args.type = type_of(x);
  args.rows = x.size(0) * x.size(1);
  args.width = x.size(2);
  args.head = args.width / heads;
  args.tokens = x.size(1);
  args.x_stride = even_x.stride(1);
  args.eps = eps;
  auto y = at::empty({x.size(0), x.size(1), heads, args.head}, x.options());
  auto rstd = floats({args.rows}, x);
  args.x = read(even_x);
  args.weight = read_floats(weights);
  args.table = read_floats(turns);
  args.y = write(y);
  args.rstd = rstd.mutable_data_ptr<float>();
  C10_CUDA_CHECK(rms_forward(args, stream()));
  return {y, rstd};
}

std::tuple<Tensor, Tensor> rms_norm_rope_backward(const Tensor& grad_y,
                                                  const Tensor& x,
                                                  const Tensor& weight,
                                                  const OptionalTensor& table,
                                                  const Tensor& rstd,
                                                  int64_t heads) {
  const c10::cuda::CUDAGuard guard(x.device());
  const auto even_x = with_even_rows(x);
  const auto dense_grad = grad_y.contiguous();
  const auto weights = weight.to(at::kFloat).contiguous();
  const auto turns = table.has_value() ? table->to(at::kFloat).contiguous() : Tensor();
  RmsBackward args;
  args.type = type_of(x);
  args.rows = x.size(0) * x.size(1);
  args.width = x.size(2);
  args.head = args.width / heads;
  args.tokens = x.size(1);
  args.x_stride = even_x.stride(1);
  auto grad_x = at::empty(x.sizes(), x.options());
  auto grad_weight = floats(weight.sizes(), x);
  const auto scratch = floats({scratch_size({1, args.rows, args.width}, 1)}, x);
  args.x = read(even_x);
  args.weight = read_floats(weights);
  args.table = read_floats(turns);
  args.rstd = read_floats(rstd);
  args.grad_y = read(dense_grad);
  args.grad_x = write(grad_x);
  args.grad_weight = grad_weight.mutable_data_ptr<float>();
  args.scratch = scratch.mutable_data_ptr<float>();
  C10_CUDA_CHECK(rms_backward(args, stream()));
  return {grad_x, grad_weight.to(weight.scalar_type())};
}

Tensor gelu_tanh_forward(const Tensor& x) {
  const c10::cuda::CUDAGuard guard(x.device());
  const auto dense_x = x.contiguous();
  auto y = at::empty_like(dense_x);
  C10_CUDA_CHECK(gelu_forward(type_of(x), read(dense_x), write(y), x.numel(), stream()));
  return y;
}

Tensor gelu_tanh_backward(const Tensor& grad_y, const Tensor& x) {
  const c10::cuda::CUDAGuard guard(x.device());
  const auto dense_x = x.contiguous();
  const auto dense_grad = grad_y.contiguous();
  auto grad_x = at::empty_like(dense_x);
  C10_CUDA_CHECK(gelu_backward(type_of(x), read(dense_x), read(dense_grad), write(grad_x),
                               x.numel(), stream()));
  return grad_x;
}

void adamw_ema(const Tensor& param,
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
               double average_weight) {
  const c10::cuda::CUDAGuard guard(param.device());
  auto args = loop_constants<float>(
      {grad_scale, lr, beta1, beta2, weight_decay, eps, count, average_weight});
  args.param = param.mutable_data_ptr<float>();
  args.grad = grad.const_data_ptr<float>();
  args.exp_avg = exp_avg.mutable_data_ptr<float>();
  args.exp_avg_sq = exp_avg_sq.mutable_data_ptr<float>();
  args.average = average.has_value() ? average->mutable_data_ptr<float>() : nullptr;
  C10_CUDA_CHECK(adamw(args, param.numel(), stream()));
}

TORCH_LIBRARY_IMPL(limbeck, CUDA, library) {
  library.impl("_residual_norm_forward", residual_norm_forward);
  library.impl("_residual_norm_backward", residual_norm_backward);
  library.impl("_rms_norm_rope_forward", rms_norm_rope_forward);
  library.impl("_rms_norm_rope_backward", rms_norm_rope_backward);
  library.impl("_gelu_tanh_forward", gelu_tanh_forward);
  library.impl("_gelu_tanh_backward", gelu_tanh_backward);
  library.impl("_adamw_ema", adamw_ema);
}

}  // namespace
}  // namespace limbeck::cuda
