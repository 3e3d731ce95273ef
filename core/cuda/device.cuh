// SPDX-License-Identifier: Apache-2.0
// What the kernels share: packs of neighbouring values, sums over a block, and the choice of a
// kernel by type and alignment.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "core/cuda/kernels.hpp"

namespace limbeck::cuda {

constexpr int kWarp = 32;
constexpr int kMostThreads = 256;

// ---- packs: V neighbouring values, read and written at once

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float to_float(__half x) { return __half2float(x); }

template <class T>
__device__ T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ inline __half from_float<__half>(float x) {
  return __float2half_rn(x);
}

template <class T, int V>
struct alignas(sizeof(T) * V) Pack {
  T values[V];
};

// V of 1 or 2 asks for no alignment beyond that of T; 4 for that of the pack.
template <int V, class T>
__device__ void load(const T* from, float (&to)[V]) {
  if constexpr (V == 4) {
    const auto pack = *reinterpret_cast<const Pack<T, V>*>(from);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      to[i] = to_float(pack.values[i]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      to[i] = to_float(from[i]);
    }
  }
}

template <int V, class T>
__device__ void store(const float (&from)[V], T* to) {
  if constexpr (V == 4) {
    Pack<T, V> pack;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      pack.values[i] = from_float<T>(from[i]);
    }
    *reinterpret_cast<Pack<T, V>*>(to) = pack;
  } else {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      to[i] = from_float<T>(from[i]);
    }
  }
}

// As it is stored in T.
template <class T>
__device__ float rounded(float x) {
  return to_float(from_float<T>(x));
}

__device__ inline int64_t offset_of(const Groups& groups, int64_t row) {
  const int64_t batch = row / groups.tokens;
  return batch * groups.batch_stride +
         (row - batch * groups.tokens) / groups.per_group * groups.group_stride;
}

// ---- sums

// Each of the N values becomes its sum over all threads of the block, the same in each of them.
// Blocks are one-dimensional and of whole warps.
template <int N>
__device__ void block_sum(float (&values)[N]) {
  __shared__ float of_warps[N][kMostThreads / kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
#pragma unroll
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int away = kWarp / 2; away > 0; away /= 2) {
      values[n] += __shfl_xor_sync(0xffffffffU, values[n], away);
    }
    if (lane == 0) {
      of_warps[n][warp] = values[n];
    }
  }
  __syncthreads();
#pragma unroll
  for (int n = 0; n < N; ++n) {
    values[n] = 0;
    for (int i = 0; i < warps; ++i) {
      values[n] += of_warps[n][i];
    }
  }
  __syncthreads();  // before the next sum writes
}

// ---- launches

// Threads for a row of `packs` packs.
inline unsigned row_threads(int64_t packs) {
  const int64_t warps = (packs + kWarp - 1) / kWarp;
  return static_cast<unsigned>(std::clamp<int64_t>(warps * kWarp, kWarp, kMostThreads));
}

// Whether packs of four may be read at these addresses, as far apart as these distances.
inline bool allows_fours(int64_t element,
                         std::initializer_list<const void*> addresses,
                         std::initializer_list<int64_t> distances) {
  const auto fits = [](int64_t value, int64_t by) { return value % by == 0; };
  return std::all_of(addresses.begin(), addresses.end(),
                     [&](const void* address) {
                       return fits(reinterpret_cast<intptr_t>(address), 4 * element);
                     }) &&
         std::all_of(distances.begin(), distances.end(),
                     [&](int64_t distance) { return fits(distance, 4); });
}

inline int64_t size_of(Type type) { return type == Type::kFloat ? 4 : 2; }

// Calls launch.template operator()<T>() for the type, and says whether the launch was accepted.
template <class Launch>
cudaError_t launch_for(Type type, const Launch& launch) {
  switch (type) {
    case Type::kFloat:
      launch.template operator()<float>();
      break;
    case Type::kBFloat16:
      launch.template operator()<__nv_bfloat16>();
      break;
    case Type::kHalf:
      launch.template operator()<__half>();
      break;
  }
  return cudaGetLastError();
}

}  // namespace limbeck::cuda
