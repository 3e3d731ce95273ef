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

// The scale of guide() for a strength w of the convention c + w (c - u), which the first trainers
// of DMD on video models use, also FastVideo's (its modular trainer has the standard one): w + 1.
constexpr double scale_of_extra(double w) { return w + 1.0; }

}  // namespace diffusion
}  // namespace v1
}  // namespace lb
