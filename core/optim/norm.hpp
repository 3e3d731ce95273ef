// SPDX-License-Identifier: Apache-2.0
// Norms of flat buffers.
#pragma once

#include <ATen/ATen.h>

namespace limbeck {

// The square of the Euclidean norm of a contiguous fp32 or fp64 tensor. Sums of 4096 squares in
// its own type, the sums in double: one fp32 sum over a large buffer is off in the fifth digit.
// The result does not depend on the number of threads. Inf and NaN come through. Synchronises.
double squared_norm(const at::Tensor& flat);

}  // namespace limbeck
