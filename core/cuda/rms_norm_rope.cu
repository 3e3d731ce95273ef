// SPDX-License-Identifier: Apache-2.0
// RMSNorm of a row, then the rotation of neighbouring channels of each head. A block has one row.
#include "core/cuda/columns.cuh"
#include "core/cuda/device.cuh"

namespace limbeck::cuda {
namespace {

// Turns the pairs among V neighbouring channels by the angles at `turn`, or back by them.
template <bool back, int V>
__device__ void rotate(float (&channels)[V], const float* turn) {
  float angle[V];
  load(turn, angle);
#pragma unroll
  for (int i = 0; i + 1 < V; i += 2) {
    const float even = channels[i];
    const float odd = channels[i + 1];
    const float cosine = angle[i];
    const float sine = back ? -angle[i + 1] : angle[i + 1];
    channels[i] = even * cosine - odd * sine;
    channels[i + 1] = even * sine + odd * cosine;
  }
}

template <class T, int V>
__global__ void rms_forward_rows(RmsForward args) {
  const int64_t row = blockIdx.x;
  const auto* x = static_cast<const T*>(args.x) + row * args.x_stride;
  auto* y = static_cast<T*>(args.y) + row * args.width;
  const int64_t begin = static_cast<int64_t>(threadIdx.x) * V;
  const int64_t step = static_cast<int64_t>(blockDim.x) * V;
  float squares[1] = {};
  for (int64_t c = begin; c < args.width; c += step) {
    float value[V];
    load(x + c, value);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      squares[0] += value[i] * value[i];
    }
  }
  block_sum(squares);
  const float rstd = 1 / sqrtf(squares[0] / static_cast<float>(args.width) + static_cast<float>(args.eps));
  if (threadIdx.x == 0) {
    args.rstd[row] = rstd;
  }
  const float* turns = args.table != nullptr ? args.table + row % args.tokens * args.head : nullptr;
  for (int64_t c = begin; c < args.width; c += step) {
    float value[V];
    float weight[V];
    load(x + c, value);
    load(args.weight + c, weight);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      value[i] *= rstd * weight[i];
    }
    if (turns != nullptr) {
      rotate<false>(value, turns + c % args.head);
    }
    store(value, y + c);
  }
}

template <class T, int V>
__global__ void rms_backward_rows(RmsBackward args) {
  const int64_t row = blockIdx.x;
  const auto* x = static_cast<const T*>(args.x) + row * args.x_stride;
  const auto* grad_y = static_cast<const T*>(args.grad_y) + row * args.width;
  auto* grad_x = static_cast<T*>(args.grad_x) + row * args.width;
  const float* turns = args.table != nullptr ? args.table + row % args.tokens * args.head : nullptr;
  const int64_t begin = static_cast<int64_t>(threadIdx.x) * V;
  const int64_t step = static_cast<int64_t>(blockDim.x) * V;
  const float rstd = args.rstd[row];
  // The gradient of x rstd.
  const auto weighted = [&](int64_t c, float(&grad)[V]) {
    float weight[V];
    load(grad_y + c, grad);
    load(args.weight + c, weight);
    if (turns != nullptr) {
      rotate<true>(grad, turns + c % args.head);
    }
#pragma unroll
    for (int i = 0; i < V; ++i) {
      grad[i] *= weight[i];
    }
  };
  float dot[1] = {};
  for (int64_t c = begin; c < args.width; c += step) {
    float value[V];
    float grad[V];
    load(x + c, value);
    weighted(c, grad);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      dot[0] += grad[i] * (value[i] * rstd);
    }
  }
  block_sum(dot);
  dot[0] /= static_cast<float>(args.width);
  for (int64_t c = begin; c < args.width; c += step) {
    float value[V];
    float grad[V];
    load(x + c, value);
    weighted(c, grad);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      grad[i] = rstd * (grad[i] - value[i] * rstd * dot[0]);
    }
    store(grad, grad_x + c);
  }
}

// Of the weight.
template <class T>
struct RmsTerm {
  const T* x;
  const T* grad_y;
  const float* rstd;
  const float* table;
  int64_t width;
  int64_t head;
  int64_t tokens;
  int64_t x_stride;
  __device__ void add(int64_t row, int64_t column, float (&sums)[1]) const {
    const T* grads = grad_y + row * width;
    float grad = to_float(grads[column]);
    if (table != nullptr) {
      // Heads have an even width: a channel and its neighbour in the pair differ in the last bit.
      const float other = to_float(grads[column ^ 1]);
      const float* turn = table + row % tokens * head + (column % head & ~int64_t{1});
      grad = grad * turn[0] + (column % 2 == 0 ? other : -other) * turn[1];
    }
    sums[0] += grad * (to_float(x[row * x_stride + column]) * rstd[row]);
  }
};

}  // namespace

cudaError_t rms_forward(const RmsForward& args, cudaStream_t stream) {
  if (args.rows == 0 || args.width == 0) {
    return cudaSuccess;
  }
  const bool fours =
      allows_fours(size_of(args.type), {args.x, args.y}, {args.width, args.head, args.x_stride}) &&
      allows_fours(sizeof(float), {args.weight, args.table}, {});
  const auto blocks = static_cast<unsigned>(args.rows);
  return launch_for(args.type, [&]<class T>() {
    if (fours) {
      rms_forward_rows<T, 4><<<blocks, row_threads(args.width / 4), 0, stream>>>(args);
    } else if (args.table != nullptr) {
      rms_forward_rows<T, 2><<<blocks, row_threads(args.width / 2), 0, stream>>>(args);
    } else {
      rms_forward_rows<T, 1><<<blocks, row_threads(args.width), 0, stream>>>(args);
    }
  });
}

cudaError_t rms_backward(const RmsBackward& args, cudaStream_t stream) {
  if (args.width == 0) {
    return cudaSuccess;
  }
  const Columns columns{1, args.rows, args.width, args.scratch};
  const bool fours = allows_fours(size_of(args.type), {args.x, args.grad_y, args.grad_x},
                                  {args.width, args.head, args.x_stride}) &&
                     allows_fours(sizeof(float), {args.weight, args.table}, {});
  const auto blocks = static_cast<unsigned>(args.rows);
  const bool is_empty = args.rows == 0;  // then the sum is zero
  return launch_for(args.type, [&]<class T>() {
    if (fours && !is_empty) {
      rms_backward_rows<T, 4><<<blocks, row_threads(args.width / 4), 0, stream>>>(args);
    } else if (args.table != nullptr && !is_empty) {
      rms_backward_rows<T, 2><<<blocks, row_threads(args.width / 2), 0, stream>>>(args);
    } else if (!is_empty) {
      rms_backward_rows<T, 1><<<blocks, row_threads(args.width), 0, stream>>>(args);
    }
    const RmsTerm<T> term{static_cast<const T*>(args.x),
                          static_cast<const T*>(args.grad_y),
                          args.rstd,
                          args.table,
                          args.width,
                          args.head,
                          args.tokens,
                          args.x_stride};
    sum_down<1>(term, columns, {{args.grad_weight}}, stream);
  });
}

}  // namespace limbeck::cuda
