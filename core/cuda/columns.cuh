// SPDX-License-Identifier: Apache-2.0
// Sums down columns in two stages whose order depends on the sizes alone: parts of a group's rows
// are summed by a block each, then the parts of each column one after the other.
#pragma once

#include "core/cuda/device.cuh"

namespace limbeck::cuda {

constexpr int kLanes = 8;            // rows that a block reads at a time
constexpr int64_t kMostParts = 64;   // of a group
constexpr int64_t kFewestRows = 64;  // of a part, unless the group has less
constexpr int64_t kColumnThreads = 256;

inline int64_t parts_of(const Columns& columns) {
  return std::clamp<int64_t>((columns.group_rows + kFewestRows - 1) / kFewestRows, 1, kMostParts);
}

// Term::add(row, column, sums) adds the N terms of an element. partials [groups, parts, N, width].
template <int N, class Term>
__global__ void sum_parts(Term term, Columns columns, int64_t parts, float* partials) {
  const int64_t column_blocks = (columns.width + kWarp - 1) / kWarp;
  const int64_t which = blockIdx.x / column_blocks;  // group and part
  const int64_t column = (blockIdx.x - which * column_blocks) * kWarp + threadIdx.x;
  const int64_t group = which / parts;
  const int64_t part = which - group * parts;
  const int64_t part_rows = (columns.group_rows + parts - 1) / parts;
  const int64_t end = group * columns.group_rows + min((part + 1) * part_rows, columns.group_rows);
  float sums[N] = {};
  if (column < columns.width) {
    for (int64_t row = group * columns.group_rows + part * part_rows + threadIdx.y; row < end;
         row += kLanes) {
      term.add(row, column, sums);
    }
  }
  __shared__ float of_lanes[N][kLanes][kWarp];
#pragma unroll
  for (int n = 0; n < N; ++n) {
    of_lanes[n][threadIdx.y][threadIdx.x] = sums[n];
  }
  __syncthreads();
  if (threadIdx.y == 0 && column < columns.width) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
      float sum = 0;
      for (int lane = 0; lane < kLanes; ++lane) {
        sum += of_lanes[n][lane][threadIdx.x];
      }
      partials[(which * N + n) * columns.width + column] = sum;
    }
  }
}

template <int N>
struct Sums {
  float* to[N];  // [groups, width] each
};

template <int N>
__global__ void sum_columns(const float* partials, Columns columns, int64_t parts, Sums<N> sums) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= columns.groups * columns.width) {
    return;
  }
  const int64_t group = i / columns.width;
  const int64_t column = i - group * columns.width;
#pragma unroll
  for (int n = 0; n < N; ++n) {
    float sum = 0;
    for (int64_t part = 0; part < parts; ++part) {
      sum += partials[((group * parts + part) * N + n) * columns.width + column];
    }
    sums.to[n][i] = sum;
  }
}

// Queues both stages.
template <int N, class Term>
void sum_down(const Term& term, const Columns& columns, const Sums<N>& sums, cudaStream_t stream) {
  const int64_t cells = columns.groups * columns.width;
  if (cells == 0) {
    return;
  }
  const int64_t parts = parts_of(columns);
  const int64_t blocks = columns.groups * parts * ((columns.width + kWarp - 1) / kWarp);
  sum_parts<N><<<static_cast<unsigned>(blocks), dim3(kWarp, kLanes), 0, stream>>>(
      term, columns, parts, columns.scratch);
  sum_columns<N><<<static_cast<unsigned>((cells + kColumnThreads - 1) / kColumnThreads),
                   kColumnThreads, 0, stream>>>(columns.scratch, columns, parts, sums);
}

}  // namespace limbeck::cuda
