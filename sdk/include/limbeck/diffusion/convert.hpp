// SPDX-License-Identifier: Apache-2.0
// What a flow-matching network predicts, in its other forms. With x = (1 - sigma) x0 + sigma noise
// the velocity is v = noise - x0, and x, v and sigma determine x0 and noise.
//
// T is double or lb::Tensor. For tensors sigma is a number or has a shape that broadcasts (see
// per_video). Give f32 operands: the results are differences of nearly equal numbers.
#pragma once

#include <limbeck/diffusion/scalar_or_tensor.hpp>

namespace lb {
inline namespace v1 LB_HIDDEN {
namespace diffusion {

// Levels below it count as it where a formula divides by sigma.
inline constexpr double kLeastSigma = 1e-8;

// (1 - sigma) x0 + sigma noise
template <class T, class S>
T add_noise(const T& x0, const T& noise, const S& sigma) {
  return (1.0 - sigma) * x0 + sigma * noise;
}

// noise - x0
template <class T>
T velocity(const T& x0, const T& noise) {
  return noise - x0;
}

// x - sigma v
template <class T, class S>
T x0_from_velocity(const T& x, const T& v, const S& sigma) {
  return x - sigma * v;
}

// x + (1 - sigma) v
template <class T, class S>
T noise_from_velocity(const T& x, const T& v, const S& sigma) {
  return x + (1.0 - sigma) * v;
}

// (x - x0) / sigma
template <class T, class S>
T velocity_from_x0(const T& x, const T& x0, const S& sigma) {
  return (x - x0) / clamp(sigma, kLeastSigma, 1.0);
}

// (x - (1 - sigma) x0) / sigma
template <class T, class S>
T noise_from_x0(const T& x, const T& x0, const S& sigma) {
  return (x - (1.0 - sigma) * x0) / clamp(sigma, kLeastSigma, 1.0);
}

}  // namespace diffusion
}  // namespace v1
}  // namespace lb
