// SPDX-License-Identifier: Apache-2.0
// The few functions that formulas of this library need for numbers and tensors alike, so that each
// formula is written once. T below is always double or lb::Tensor.
#pragma once

#include <algorithm>
#include <cmath>

#include <limbeck/tensor.hpp>

namespace lb {
inline namespace v1 LB_HIDDEN {
namespace diffusion {

inline double clamp(double x, double low, double high) { return std::clamp(x, low, high); }
inline Tensor clamp(const Tensor& x, double low, double high) { return x.clamp(low, high); }
inline double cosine(double x) { return std::cos(x); }
inline Tensor cosine(const Tensor& x) { return x.cos(); }
inline double floor(double x) { return std::floor(x); }
inline Tensor floor(const Tensor& x) { return x.floor(); }
inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
inline Tensor sigmoid(const Tensor& x) { return x.sigmoid(); }

// A value per sample [b], or per frame [b, T], in a shape that meets a video [b, c, T, h, w]:
// [b, 1, 1, 1, 1] or [b, 1, T, 1, 1].
inline Tensor per_video(const Tensor& values) {
  const auto sizes = values.sizes();
  if (sizes.size() == 2) {
    return values.view({sizes[0], 1, sizes[1], 1, 1});
  }
  return values.view({sizes.at(0), 1, 1, 1, 1});
}

}  // namespace diffusion
}  // namespace v1
}  // namespace lb
