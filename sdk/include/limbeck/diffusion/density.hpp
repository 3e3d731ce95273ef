// SPDX-License-Identifier: Apache-2.0
// Which noise levels training sees: densities as functions of given draws, and the way from a place
// u of [0, 1] to a level. Levels descend along u, so small u means much noise. T is double or
// lb::Tensor, then element by element in its own dtype: give f64, and round the level once.
#pragma once

#include <cstdint>
#include <numbers>

#include <limbeck/diffusion/scalar_or_tensor.hpp>
#include <limbeck/diffusion/schedule.hpp>

namespace lb {
inline namespace v1 LB_HIDDEN {
namespace diffusion {

// u from z ~ N(0, 1): sigmoid(mean + std z). A positive mean gives larger u, hence less noise.
template <class T>
T logit_normal(const T& z, double mean, double std) {
  return sigmoid(T(mean + std * z));
}

// u from r ~ U[0, 1): 1 - r - scale (cos^2(pi r / 2) - 1 + r) (Esser et al. 2024, "mode sampling").
// Stays in [0, 1] for scale in [-1, 2 / (pi - 2)].
template <class T>
T mode(const T& r, double scale) {
  const T c = cosine(T(std::numbers::pi / 2.0 * r));
  return 1.0 - r - scale * (c * c - 1.0 + r);
}

// floor(u n), at most n - 1: u can reach 1. For a tensor the indices are floats.
template <class T>
T index_of(const T& u, int64_t n = 1000) {
  const auto count = static_cast<double>(n);
  return clamp(floor(T(u * count)), 0.0, count - 1.0);
}

// The level at place u of Grid(s): shift((1000 - i) / 1000), i = index_of(u). Never 0.
template <class T>
T discrete_level(const T& u, double s) {
  return shift(T((kTimeScale - index_of(u)) / kTimeScale), s);
}

// The level at place u without a grid: shift(1 - u).
template <class T>
T continuous_level(const T& u, double s) {
  return shift(clamp(T(1.0 - u), 0.0, 1.0), s);
}

}  // namespace diffusion
}  // namespace v1
}  // namespace lb
