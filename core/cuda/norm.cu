// SPDX-License-Identifier: Apache-2.0
// Residual, gate and modulated LayerNorm. A block has one row and reads it again for each pass: it
// comes from the cache then.
#include "core/cuda/columns.cuh"
#include "core/cuda/device.cuh"

namespace limbeck::cuda {
namespace {

template <class T, int V>
__global__ void norm_forward_rows(NormForward args) {
  const int64_t row = blockIdx.x;
  const int64_t first = row * args.width;
  const auto* x = static_cast<const T*>(args.x) + first;
  const int64_t begin = static_cast<int64_t>(threadIdx.x) * V;
  const int64_t step = static_cast<int64_t>(blockDim.x) * V;
  float total[1] = {};
  if (args.y != nullptr) {
    const auto* y = static_cast<const T*>(args.y) + first;
    const float* gate =
        args.gate != nullptr ? args.gate + offset_of(args.gate_groups, row) : nullptr;
    auto* z = static_cast<T*>(args.z) + first;
    for (int64_t c = begin; c < args.width; c += step) {
      float sum[V];
      float other[V];
      load(x + c, sum);
      load(y + c, other);
      if (gate != nullptr) {
        float factor[V];
        load(gate + c, factor);
#pragma unroll
        for (int i = 0; i < V; ++i) {
          other[i] *= factor[i];
        }
      }
#pragma unroll
      for (int i = 0; i < V; ++i) {
        sum[i] += other[i];
        total[0] += rounded<T>(sum[i]);
      }
      store(sum, z + c);
    }
    x = z;  // each thread reads what it wrote itself
  } else {
    for (int64_t c = begin; c < args.width; c += step) {
      float value[V];
      load(x + c, value);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        total[0] += value[i];
      }
    }
  }
  if (args.u == nullptr) {
    return;
  }
  block_sum(total);
  const float mean = total[0] / static_cast<float>(args.width);
  float squares[1] = {};
  for (int64_t c = begin; c < args.width; c += step) {
    float value[V];
    load(x + c, value);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      squares[0] += (value[i] - mean) * (value[i] - mean);
    }
  }
  block_sum(squares);
  const float rstd = 1 / sqrtf(squares[0] / static_cast<float>(args.width) + static_cast<float>(args.eps));
  if (threadIdx.x == 0) {
    args.mean[row] = mean;
    args.rstd[row] = rstd;
  }
  const float* scale = args.scale + offset_of(args.scale_groups, row);
  const float* shift = args.shift + offset_of(args.shift_groups, row);
  auto* u = static_cast<T*>(args.u) + first;
  for (int64_t c = begin; c < args.width; c += step) {
    float value[V];
    float factor[V];
    float offset[V];
    load(x + c, value);
    load(scale + c, factor);
    load(shift + c, offset);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      value[i] = (value[i] - mean) * rstd * (args.base + factor[i]) + offset[i];
    }
    store(value, u + c);
  }
}

template <class T, int V>
__global__ void norm_backward_rows(NormBackward args) {
  const int64_t row = blockIdx.x;
  const int64_t first = row * args.width;
  const int64_t begin = static_cast<int64_t>(threadIdx.x) * V;
  const int64_t step = static_cast<int64_t>(blockDim.x) * V;
  const auto* grad_z =
      args.grad_z != nullptr ? static_cast<const T*>(args.grad_z) + first : nullptr;
  if (args.grad_u != nullptr) {
    const auto* z = static_cast<const T*>(args.z) + first;
    const auto* grad_u = static_cast<const T*>(args.grad_u) + first;
    const float* scale = args.scale + offset_of(args.scale_groups, row);
    const float mean = args.mean[row];
    const float rstd = args.rstd[row];
    float means[2] = {};  // of the weighted gradient, and of it times the normalised row
    for (int64_t c = begin; c < args.width; c += step) {
      float value[V];
      float grad[V];
      float factor[V];
      load(z + c, value);
      load(grad_u + c, grad);
      load(scale + c, factor);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const float weighted = grad[i] * (args.base + factor[i]);
        means[0] += weighted;
        means[1] += weighted * ((value[i] - mean) * rstd);
      }
    }
    block_sum(means);
    means[0] /= static_cast<float>(args.width);
    means[1] /= static_cast<float>(args.width);
    auto* grad_x = static_cast<T*>(args.grad_x) + first;
    for (int64_t c = begin; c < args.width; c += step) {
      float value[V];
      float grad[V];
      float factor[V];
      float before[V] = {};
      load(z + c, value);
      load(grad_u + c, grad);
      load(scale + c, factor);
      if (grad_z != nullptr) {
        load(grad_z + c, before);
      }
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const float normed = (value[i] - mean) * rstd;
        const float weighted = grad[i] * (args.base + factor[i]);
        before[i] += rstd * (weighted - means[0] - normed * means[1]);
      }
      store(before, grad_x + c);
    }
    grad_z = grad_x;  // each thread reads what it wrote itself
  }
  if (args.gate != nullptr) {
    const float* gate = args.gate + offset_of(args.gate_groups, row);
    auto* grad_y = static_cast<T*>(args.grad_y) + first;
    for (int64_t c = begin; c < args.width; c += step) {
      float grad[V];
      float factor[V];
      load(grad_z + c, grad);
      load(gate + c, factor);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        grad[i] *= factor[i];
      }
      store(grad, grad_y + c);
    }
  }
}

// Of (1 + scale) and shift.
template <class T>
struct NormTerm {
  const T* z;
  const T* grad_u;
  const float* mean;
  const float* rstd;
  int64_t width;
  __device__ void add(int64_t row, int64_t column, float (&sums)[2]) const {
    const float grad = to_float(grad_u[row * width + column]);
    sums[0] += grad * ((to_float(z[row * width + column]) - mean[row]) * rstd[row]);
    sums[1] += grad;
  }
};

template <class T>
struct GateTerm {
  const T* grad_z;
  const T* y;
  int64_t width;
  __device__ void add(int64_t row, int64_t column, float (&sums)[1]) const {
    sums[0] += to_float(grad_z[row * width + column]) * to_float(y[row * width + column]);
  }
};

}  // namespace

cudaError_t norm_forward(const NormForward& args, cudaStream_t stream) {
  if (args.rows == 0 || args.width == 0) {
    return cudaSuccess;
  }
  const bool fours =
      allows_fours(size_of(args.type), {args.x, args.y, args.z, args.u}, {args.width}) &&
      allows_fours(sizeof(float), {args.gate, args.scale, args.shift},
                   {args.gate_groups.batch_stride, args.gate_groups.group_stride,
                    args.scale_groups.batch_stride, args.scale_groups.group_stride,
                    args.shift_groups.batch_stride, args.shift_groups.group_stride});
  const auto blocks = static_cast<unsigned>(args.rows);
  return launch_for(args.type, [&]<class T>() {
    if (fours) {
      norm_forward_rows<T, 4><<<blocks, row_threads(args.width / 4), 0, stream>>>(args);
    } else {
      norm_forward_rows<T, 1><<<blocks, row_threads(args.width), 0, stream>>>(args);
    }
  });
}

cudaError_t norm_backward(const NormBackward& args, cudaStream_t stream) {
  const bool is_nothing = args.grad_u == nullptr && args.gate == nullptr;
  if (is_nothing || args.rows == 0 || args.width == 0) {
    return cudaSuccess;
  }
  const bool fours =
      allows_fours(size_of(args.type), {args.z, args.grad_u, args.grad_z, args.grad_x, args.grad_y},
                   {args.width}) &&
      allows_fours(sizeof(float), {args.gate, args.scale},
                   {args.gate_groups.batch_stride, args.gate_groups.group_stride,
                    args.scale_groups.batch_stride, args.scale_groups.group_stride});
  const auto blocks = static_cast<unsigned>(args.rows);
  return launch_for(args.type, [&]<class T>() {
    if (fours) {
      norm_backward_rows<T, 4><<<blocks, row_threads(args.width / 4), 0, stream>>>(args);
    } else {
      norm_backward_rows<T, 1><<<blocks, row_threads(args.width), 0, stream>>>(args);
    }
  });
}

int64_t scratch_size(const Columns& columns, int64_t sums) {
  return columns.groups * parts_of(columns) * sums * columns.width;
}

cudaError_t norm_sums(const NormSums& args, cudaStream_t stream) {
  return launch_for(args.type, [&]<class T>() {
    const NormTerm<T> term{static_cast<const T*>(args.z), static_cast<const T*>(args.grad_u),
                           args.mean, args.rstd, args.columns.width};
    sum_down<2>(term, args.columns, {{args.grad_scale, args.grad_shift}}, stream);
  });
}

cudaError_t gate_sums(const GateSums& args, cudaStream_t stream) {
  return launch_for(args.type, [&]<class T>() {
    const GateTerm<T> term{static_cast<const T*>(args.grad_z), static_cast<const T*>(args.y),
                           args.columns.width};
    sum_down<1>(term, args.columns, {{args.grad_gate}}, stream);
  });
}

}  // namespace limbeck::cuda
