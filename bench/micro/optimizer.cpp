// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "bench.hpp"
#include "core/ops/adamw.hpp"

namespace limbeck::bench {
namespace {

constexpr int64_t kParameters = 50'000'000;
constexpr double kFloatBytes = 4;

struct State {
  at::Tensor param, grad, exp_avg, exp_avg_sq, average;

  explicit State(int64_t size)
      : param(at::ones({size})),
        grad(at::full({size}, 0.5)),
        exp_avg(at::zeros({size})),
        exp_avg_sq(at::zeros({size})),
        average(at::ones({size})) {}
};

AdamWConstants constants() {
  AdamWConstants c;
  c.grad_scale = 0.5;
  c.lr = 1e-3;
  c.beta1 = 0.9;
  c.beta2 = 0.999;
  c.weight_decay = 0.01;
  c.eps = 1e-8;
  c.average_weight = 0.25;
  return c;
}

void update(State& state) {
  adamw_ema(state.param, state.grad, state.exp_avg, state.exp_avg_sq, state.average, constants());
}

// A first update moves by lr m / sqrt(v) = lr whatever the gradient, after the decay.
void check_update() {
  State state(1000);
  update(state);
  const double expected = 1.0 * (1 - 1e-3 * 0.01) - 1e-3;
  const double param = state.param[999].item<double>();
  require(std::abs(param - expected) < 1e-6, "AdamW");
  require(std::abs(state.average[999].item<double>() - (0.75 + 0.25 * param)) < 1e-6, "EMA");
}

// Bandwidth for the mix of an update, five streams read and four written: each buffer is
// incremented by another, with stores as the compiler makes them.
double stream_seconds(State& state) {
  float* p = state.param.mutable_data_ptr<float>();
  float* a = state.average.mutable_data_ptr<float>();
  float* m = state.exp_avg.mutable_data_ptr<float>();
  float* v = state.exp_avg_sq.mutable_data_ptr<float>();
  const float* g = state.grad.const_data_ptr<float>();
  return best_seconds([&] {
    at::parallel_for(0, kParameters, 1 << 16, [&](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) {
        p[i] += g[i];
        a[i] += g[i];
        m[i] += g[i];
        v[i] += g[i];
      }
    });
  });
}

}  // namespace

std::vector<Row> optimizer() {
  check_update();
  State state(kParameters);
  const double moved = 9 * kFloatBytes * static_cast<double>(kParameters);
  const double pass = best_seconds([&] { update(state); });
  const double streams = stream_seconds(state);
  const auto from = at::ones({4 * kParameters});
  auto to = at::zeros({4 * kParameters});
  const double copy = best_seconds([&] { to.copy_(from); });
  const double copied = 2 * 4 * kFloatBytes * static_cast<double>(kParameters);
  return {
      {"AdamW + EMA, one pass", "50 M parameters", pass, 0, moved / pass / 1e9, "GB/s"},
      {"plain loop, same streams", "50 M x 9 streams", streams, 0, moved / streams / 1e9, "GB/s"},
      {"copy", "800 MB", copy, 0, copied / copy / 1e9, "GB/s"}};
}

}  // namespace limbeck::bench
