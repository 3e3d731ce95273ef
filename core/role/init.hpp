// SPDX-License-Identifier: Apache-2.0
// Initial values of parameters that no file provides.
#pragma once

#include <cstdint>
#include <string>

#include <ATen/ATen.h>

namespace limbeck {

// Fills `out` in place. `expression` is one of
//   zeros, ones, constant(a), normal(mean, deviation), uniform(low, high),
//   xavier_uniform   U(-b, b), b = sqrt(6 / (fan_in + fan_out))       (Glorot and Bengio 2010)
//   kaiming_uniform  U(-b, b), b = sqrt(1 / fan_in), what libtorch's Linear does
// with fan_out = size(0) and fan_in = numel / size(0): a convolution counts as the matrix it is
// applied as. The numbers depend on `seed` and the shape alone. Throws Error(kPlugin) for another
// expression. [any]
void init_param(at::Tensor& out, const std::string& expression, uint64_t seed);

}  // namespace limbeck
