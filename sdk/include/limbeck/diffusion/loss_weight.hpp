// SPDX-License-Identifier: Apache-2.0
// Weights of the velocity loss by noise level (Esser et al. 2024, section 3.1). T is double or
// lb::Tensor.
#pragma once

#include <numbers>

#include <limbeck/diffusion/scalar_or_tensor.hpp>

namespace lb {
inline namespace v1 LB_HIDDEN {
namespace diffusion {

// 1 / sigma^2, with levels below `least` counted as that.
template <class T>
T sigma_sqrt_weight(const T& sigma, double least = 1e-3) {
  const T bounded = clamp(sigma, least, 1.0);
  return 1.0 / (bounded * bounded);
}

// 2 / (pi (1 - 2 sigma + 2 sigma^2))
template <class T>
T cosmap_weight(const T& sigma) {
  return 2.0 / (std::numbers::pi * (1.0 - 2.0 * sigma + 2.0 * sigma * sigma));
}

}  // namespace diffusion
}  // namespace v1
}  // namespace lb
