// SPDX-License-Identifier: Apache-2.0
// Classifier-free guidance (Ho and Salimans 2022) in the standard convention.
#pragma once

#include <limbeck/diffusion/scalar_or_tensor.hpp>

namespace lb {
inline namespace v1 LB_HIDDEN {
namespace diffusion {

// unconditional + scale (conditional - unconditional); scale 1 is no guidance, and then the
// unconditional pass is not worth running. Velocity and x0 predictions give the same at equal
// level. The convention c + w (c - u) that some trainers use has w = scale - 1.
template <class T>
T guide(const T& unconditional, const T& conditional, double scale) {
  return unconditional + scale * (conditional - unconditional);
}

}  // namespace diffusion
}  // namespace v1
}  // namespace lb
