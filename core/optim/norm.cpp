// SPDX-License-Identifier: Apache-2.0
#include "core/optim/norm.hpp"

#include <algorithm>
#include <vector>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

namespace limbeck {
namespace {

constexpr int64_t kChunk = 4096;
constexpr int64_t kLanes = 16;

// Sixteen running sums, so that the compiler can use vector registers without reordering.
template <class T>
double chunk_sum(const T* values, int64_t count) {
  T lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += values[i + lane] * values[i + lane];
    }
  }
  double sum = 0;
  for (const T lane : lanes) {
    sum += static_cast<double>(lane);
  }
  for (; i < count; ++i) {
    sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  return sum;
}

}  // namespace

double squared_norm(const at::Tensor& flat) {
  TORCH_CHECK(flat.is_contiguous(), "squared_norm() needs a contiguous tensor");
  const auto on_cpu = flat.detach().cpu();
  const int64_t chunks = (on_cpu.numel() + kChunk - 1) / kChunk;
  std::vector<double> sums(static_cast<size_t>(chunks));
  AT_DISPATCH_FLOATING_TYPES(on_cpu.scalar_type(), "squared_norm", [&] {
    const auto* values = on_cpu.const_data_ptr<scalar_t>();
    at::parallel_for(0, chunks, 16, [&](int64_t begin, int64_t end) {
      for (int64_t chunk = begin; chunk < end; ++chunk) {
        const int64_t at = chunk * kChunk;
        sums[static_cast<size_t>(chunk)] =
            chunk_sum(values + at, std::min(kChunk, on_cpu.numel() - at));
      }
    });
  });
  double total = 0;
  for (const double sum : sums) {
    total += sum;
  }
  return total;
}

}  // namespace limbeck
