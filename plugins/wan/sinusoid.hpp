// SPDX-License-Identifier: Apache-2.0
// The sinusoidal embedding of timesteps (Wan 2.1 transformer, as diffusers computes it).
#pragma once

#include <cstdint>

#include <limbeck/tensor.hpp>

namespace wan {

// Embeds timesteps [n] of the scale 0 ... 1000 as [n, width] = [cos | sin] of t 10000^(-k / half),
// k = 0 ... half - 1, half = floor(width / 2); an odd width ends with a column of zeros. All
// arithmetic is in `dtype`, LB_F32 or LB_F64: at t near 1000 the two differ by 6e-5 in phase.
lb::Tensor sinusoid(const lb::Tensor& timesteps, int64_t width, lb_dtype dtype);

}  // namespace wan
