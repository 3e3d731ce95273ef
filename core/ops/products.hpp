// SPDX-License-Identifier: Apache-2.0
// Matrix products of linear layers, each by what is fastest for it:
//   up to 2^27 multiplications, fp32 and fp64 on the CPU: loops of our own (kernels/). They cost
//   nothing to call and reach what the CPU can do while an operand fits into its cache; results do
//   not depend on the number of threads.
//   larger ones in fp32 on CPUs with AVX-512 that are not Intel's: oneDNN, which libtorch brings.
//   MKL, which ATen uses, runs its 256-bit loops there, at half the speed.
//   everything else: ATen.
// Which one computes depends on the CPU, the dtype and the sizes only.
#pragma once

#include <ATen/ATen.h>

namespace limbeck {

// a b for matrices [m, k] and [k, n], transposed views included. No history. [compute]
at::Tensor product(const at::Tensor& a, const at::Tensor& b);

// x w^T + bias for x [m, k], w [n, k]; `bias` [n] may be undefined. No history. [compute]
at::Tensor linear_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// out = a b, or out += a b. `out` is contiguous and overlaps neither. No history. [compute]
void product_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool adds);

}  // namespace limbeck
