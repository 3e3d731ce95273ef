// SPDX-License-Identifier: Apache-2.0
#include "sinusoid.hpp"

#include <cmath>

namespace wan {

lb::Tensor sinusoid(const lb::Tensor& timesteps, int64_t width, lb_dtype dtype) {
  const int64_t half = width / 2;
  // In this order of roundings: the exponent is a product, then a quotient.
  const auto exponents = lb::arange(half, dtype) * -std::log(10000.0) / half;
  const auto angles = timesteps.to(dtype).unsqueeze(1) * exponents.exp();
  if (width % 2 == 0) {
    return lb::cat({angles.cos(), angles.sin()}, 1);
  }
  const auto last = lb::zeros({timesteps.size(0), 1}, dtype);
  return lb::cat({angles.cos(), angles.sin(), last}, 1);
}

}  // namespace wan
