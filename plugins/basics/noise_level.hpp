// SPDX-License-Identifier: Apache-2.0
// Noise levels as formulas: densities, the shifted grid, loss weights, the grid of a sampler.
// T is lb::Tensor (element by element, with f32 arithmetic for f32) or double.
//
// A noise level sigma of [0, 1] mixes a clean sample x0 and noise: (1 - sigma) x0 + sigma noise.
// A density gives a place u of [0, 1]: 0 is the noisiest end, 1 the clean one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include <limbeck/tensor.hpp>

namespace basics {

// Levels of the discrete grid; a model's timestep is kLevels * sigma.
constexpr double kLevels = 1000.0;

namespace math {

inline double cos(double x) { return std::cos(x); }
inline double floor(double x) { return std::floor(x); }
inline double clamp(double x, double low, double high) { return std::clamp(x, low, high); }
inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
inline lb::Tensor cos(const lb::Tensor& x) { return x.cos(); }
inline lb::Tensor floor(const lb::Tensor& x) { return x.floor(); }
inline lb::Tensor clamp(const lb::Tensor& x, double low, double high) { return x.clamp(low, high); }
inline lb::Tensor sigmoid(const lb::Tensor& x) { return x.sigmoid(); }

}  // namespace math

// S_s(sigma) = s sigma / (1 + (s - 1) sigma): moves levels towards noise for s > 1.
template <class T>
T shift(const T& sigma, double s) {
  return s * sigma / (1.0 + (s - 1.0) * sigma);
}

// Density "logit_normal" from z ~ N(0, 1): u = sigmoid(mean + std z). A positive mean gives less
// noise.
template <class T>
T logit_normal(const T& z, double mean, double std) {
  return math::sigmoid(mean + std * z);
}

// Density "mode" from v ~ U[0, 1): u = 1 - v - scale (cos^2(pi v / 2) - 1 + v). Stays in [0, 1]
// for scale in [-1, 2 / (pi - 2)].
template <class T>
T mode(const T& v, double scale) {
  const T c = math::cos(std::numbers::pi / 2.0 * v);
  return 1.0 - v - scale * (c * c - 1.0 + v);
}

// The level at place u of the shifted grid sigma_i = S_s((1000 - i) / 1000), i = floor(1000 u)
// limited to [0, 999]. Never 0.
template <class T>
T discrete_level(const T& u, double s) {
  const T i = math::clamp(math::floor(kLevels * u), 0.0, kLevels - 1.0);
  return shift<T>((kLevels - i) / kLevels, s);
}

// The level at place u without a grid: S_s(1 - u).
template <class T>
T continuous_level(const T& u, double s) {
  return shift<T>(math::clamp(1.0 - u, 0.0, 1.0), s);
}

// Loss weight "sigma_sqrt": 1 / sigma^2, with levels below one thousandth counted as that.
template <class T>
T sigma_sqrt_weight(const T& sigma) {
  const T bounded = math::clamp(sigma, 1.0 / kLevels, 1.0);
  return 1.0 / (bounded * bounded);
}

// Loss weight "cosmap": 2 / (pi (1 - 2 sigma + 2 sigma^2)).
template <class T>
T cosmap_weight(const T& sigma) {
  return 2.0 / (std::numbers::pi * (1.0 - 2.0 * sigma + 2.0 * sigma * sigma));
}

// The levels an Euler sampler visits: S_s(1 - j / steps) for j = 0 ... steps. The first is 1, the
// last 0.
inline std::vector<double> sampling_levels(int64_t steps, double s) {
  std::vector<double> levels;
  for (int64_t j = 0; j <= steps; ++j) {
    levels.push_back(shift(1.0 - static_cast<double>(j) / static_cast<double>(steps), s));
  }
  return levels;
}

}  // namespace basics
