// SPDX-License-Identifier: Apache-2.0
// Samplers: the levels they visit, and their steps. A loop over them is
//
//   const auto sigmas = lb::diffusion::euler_sigmas(steps, shift);
//   for (size_t i = 0; i + 1 < sigmas.size(); ++i) {
//     const auto v = predict(x, 1000 * sigmas[i]);
//     x = lb::diffusion::euler_step(x, v, sigmas[i], sigmas[i + 1]);
//   }
#pragma once

#include <cstdint>
#include <vector>

#include <limbeck/diffusion/convert.hpp>
#include <limbeck/diffusion/schedule.hpp>

namespace lb {
inline namespace v1 LB_HIDDEN {
namespace diffusion {

// steps + 1 levels: a uniform grid from 1 to 0, shifted once.
inline std::vector<double> euler_sigmas(int64_t steps, double s) {
  std::vector<double> sigmas;
  for (int64_t i = 0; i <= steps; ++i) {
    sigmas.push_back(shift(static_cast<double>(steps - i) / static_cast<double>(steps), s));
  }
  return sigmas;
}

// steps + 1 levels as FlowMatchEulerDiscreteScheduler of diffusers sets them: uniform from 1 to the
// last level of the shifted training grid, shifted again, then 0. The low end is shifted twice.
inline std::vector<double> diffusers_euler_sigmas(int64_t steps, double s) {
  const double last = shift(1.0 / kTimeScale, s);
  std::vector<double> sigmas;
  for (int64_t i = 0; i < steps; ++i) {
    const double along = steps == 1 ? 0.0 : static_cast<double>(i) / static_cast<double>(steps - 1);
    sigmas.push_back(shift(1.0 + (last - 1.0) * along, s));
  }
  sigmas.push_back(0.0);
  return sigmas;
}

// One Euler step of dx/dsigma = v from level `sigma` to `next`.
template <class T>
T euler_step(const T& x, const T& v, double sigma, double next) {
  return x + (next - sigma) * v;
}

// One step of a few-step sampler: predict x0, then mix it with fresh noise at level `next`
// (next 0: x0 itself).
template <class T>
T renoise_step(const T& x, const T& v, double sigma, double next, const T& noise) {
  return add_noise(x0_from_velocity(x, v, sigma), noise, next);
}

}  // namespace diffusion
}  // namespace v1
}  // namespace lb
