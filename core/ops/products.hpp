// SPDX-License-Identifier: Apache-2.0
// Matrix products of linear layers, by the library that is faster for them here.
//
// libtorch brings two: MKL, which ATen uses for fp32, and oneDNN. On CPUs with AVX-512 that are
// not Intel's, MKL runs its 256-bit loops and oneDNN is about twice as fast, but costs 9 us more a
// call. Which one computes depends on the CPU, the dtype and the sizes only.
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
