// SPDX-License-Identifier: Apache-2.0
// Noise levels of flow matching.
//
// A level sigma of [0, 1] stands for x = (1 - sigma) x0 + sigma noise; a network is told the
// timestep t = 1000 sigma. The shift moves levels towards noise (s > 1) without moving 0 and 1.
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include <limbeck/diffusion/scalar_or_tensor.hpp>

namespace lb {
inline namespace v1 LB_HIDDEN {
namespace diffusion {

// Timesteps of sigma = 1.
inline constexpr double kTimeScale = 1000.0;

// s sigma / (1 + (s - 1) sigma), for sigma in [0, 1] and s > 0. T is double or lb::Tensor.
template <class T>
T shift(const T& sigma, double s) {
  return s == 1.0 ? sigma : T(s * sigma / (1.0 + (s - 1.0) * sigma));
}

// The inverse: sigma / (s - (s - 1) sigma).
template <class T>
T unshift(const T& sigma, double s) {
  return s == 1.0 ? sigma : T(sigma / (s - (s - 1.0) * sigma));
}

// The level of a timestep, clamp(t / 1000, 0, 1), exact for any t.
template <class T>
T sigma_of(const T& timestep) {
  return clamp(T(timestep / kTimeScale), 0.0, 1.0);
}

// The discrete grid on which flow-matching models are usually trained: sigma_i =
// shift((n - i) / n), i = 0 ... n - 1, descending from 1, without a final 0.
class Grid {
 public:
  // `s` is the shift, `n` the number of levels.
  explicit Grid(double s = 1.0, int64_t n = 1000) {
    sigmas_.reserve(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      sigmas_.push_back(shift(static_cast<double>(n - i) / static_cast<double>(n), s));
    }
  }

  int64_t size() const { return static_cast<int64_t>(sigmas_.size()); }
  // Level i of 0 ... size() - 1, and its timestep.
  double sigma(int64_t i) const { return sigmas_.at(static_cast<size_t>(i)); }
  double timestep(int64_t i) const { return kTimeScale * sigma(i); }
  const std::vector<double>& sigmas() const& { return sigmas_; }
  std::vector<double> sigmas() && { return std::move(sigmas_); }

  // The index of the level nearest to a timestep, the noisier one of two that are equally near.
  // Timesteps below the last level give the last level, also 0.
  int64_t nearest(double timestep) const {
    int64_t best = 0;
    for (int64_t i = 1; i < size(); ++i) {
      const auto distance = [&](int64_t k) { return std::abs(this->timestep(k) - timestep); };
      if (distance(i) < distance(best)) {
        best = i;
      }
    }
    return best;
  }
  // The level at the nearest index: what schedulers with a lookup table use instead of sigma_of().
  double sigma_of(double timestep) const { return sigma(nearest(timestep)); }
  // The same for timesteps [b], as f32 [b].
  Tensor sigma_of(const Tensor& timesteps) const {
    const auto count = size();
    const auto table = tensor(std::vector<float>(sigmas_.begin(), sigmas_.end()), {count});
    const auto distance =
        (table * kTimeScale - timesteps.to(LB_F32).reshape({-1, 1})).abs();  // [b, n]
    return table.index_select(0, (-distance).argmax(1));
  }

 private:
  std::vector<double> sigmas_;
};

// A list of denoising timesteps given without shift ([1000, 750, 500, 250]) moved onto the shifted
// schedule: 1000 shift(t / 1000). 0 stays 0.
inline std::vector<double> warp(std::vector<double> timesteps, double s) {
  for (auto& timestep : timesteps) {
    timestep = kTimeScale * shift(timestep / kTimeScale, s);
  }
  return timesteps;
}

}  // namespace diffusion
}  // namespace v1
}  // namespace lb
