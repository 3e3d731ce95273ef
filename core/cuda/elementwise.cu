// SPDX-License-Identifier: Apache-2.0
// What works on each element by itself: GELU and AdamW.
#include "core/cuda/device.cuh"

namespace limbeck::cuda {
namespace {

constexpr int kThreads = 256;
constexpr float kSqrt2OverPi = 0.79788456080286535588F;
constexpr float kCubic = 0.044715F;

// sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3).
__device__ float sigmoid_2u(float x) {
  const float u = kSqrt2OverPi * x * (1 + kCubic * x * x);
  return 1 / (1 + expf(fminf(fmaxf(-2 * u, -80.0F), 80.0F)));
}

template <class T>
struct GeluForward {
  const T* x;
  T* y;
  template <int V>
  __device__ void at(int64_t i) const {
    float value[V];
    load(x + i, value);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      value[k] *= sigmoid_2u(value[k]);
    }
    store(value, y + i);
  }
};

template <class T>
struct GeluBackward {
  const T* x;
  const T* grad_y;
  T* grad_x;
  template <int V>
  __device__ void at(int64_t i) const {
    float value[V];
    float grad[V];
    load(x + i, value);
    load(grad_y + i, grad);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const float s = sigmoid_2u(value[k]);
      const float slope = 2 * kSqrt2OverPi * (1 + 3 * kCubic * value[k] * value[k]);
      grad[k] *= s + value[k] * slope * (s - s * s);
    }
    store(grad, grad_x + i);
  }
};

struct Update {
  kernels::AdamW<float> args;
  template <int V>
  __device__ void at(int64_t i) const {
    float param[V];
    float grad[V];
    float first[V];
    float second[V];
    load(args.param + i, param);
    load(args.grad + i, grad);
    load(args.exp_avg + i, first);
    load(args.exp_avg_sq + i, second);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const float g = grad[k] * args.scale;
      first[k] += args.rest1 * (g - first[k]);
      second[k] = args.beta2 * second[k] + args.rest2 * g * g;
      param[k] = param[k] * args.keep -
                 args.step * first[k] / (sqrtf(second[k]) * args.inverse_root + args.eps);
    }
    store(param, args.param + i);
    store(first, args.exp_avg + i);
    store(second, args.exp_avg_sq + i);
    if (args.average != nullptr) {
      float average[V];
      load(args.average + i, average);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        average[k] += args.average_weight * (param[k] - average[k]);
      }
      store(average, args.average + i);
    }
  }
};

// body.at<V>(i) for V elements from i, and one by one for what is left of `count`.
template <int V, class Body>
__global__ void for_each(Body body, int64_t count) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * V;
  if (i + V <= count) {
    body.template at<V>(i);
  } else {
    for (int64_t rest = i; rest < count; ++rest) {
      body.template at<1>(rest);
    }
  }
}

template <class Body>
void over(int64_t count, bool fours, const Body& body, cudaStream_t stream) {
  if (count == 0) {
    return;
  }
  const int64_t threads = fours ? (count + 3) / 4 : count;
  const auto blocks = static_cast<unsigned>((threads + kThreads - 1) / kThreads);
  if (fours) {
    for_each<4><<<blocks, kThreads, 0, stream>>>(body, count);
  } else {
    for_each<1><<<blocks, kThreads, 0, stream>>>(body, count);
  }
}

}  // namespace

cudaError_t gelu_forward(Type type, const void* x, void* y, int64_t count, cudaStream_t stream) {
  const bool fours = allows_fours(size_of(type), {x, y}, {});
  return launch_for(type, [&]<class T>() {
    over(count, fours, GeluForward<T>{static_cast<const T*>(x), static_cast<T*>(y)}, stream);
  });
}

cudaError_t gelu_backward(Type type,
                          const void* x,
                          const void* grad_y,
                          void* grad_x,
                          int64_t count,
                          cudaStream_t stream) {
  const bool fours = allows_fours(size_of(type), {x, grad_y, grad_x}, {});
  return launch_for(type, [&]<class T>() {
    over(count, fours,
         GeluBackward<T>{static_cast<const T*>(x), static_cast<const T*>(grad_y),
                         static_cast<T*>(grad_x)},
         stream);
  });
}

cudaError_t adamw(const kernels::AdamW<float>& args, int64_t count, cudaStream_t stream) {
  const bool fours = allows_fours(
      sizeof(float), {args.param, args.grad, args.exp_avg, args.exp_avg_sq, args.average}, {});
  over(count, fours, Update{args}, stream);
  return cudaGetLastError();
}

}  // namespace limbeck::cuda
