// SPDX-License-Identifier: Apache-2.0
// Matrix products on raw memory, for operators that run many small ones.
#pragma once

#include <cstdint>

namespace limbeck {

// A row-major matrix as the product reads it: `transposed` uses the stored rows as columns.
template <class T>
struct Operand {
  const T* data = nullptr;
  int64_t stride = 0;  // from stored row to stored row, in elements
  bool transposed = false;
};

// Whether matmul() below exists: this build found BLAS in libtorch.
bool has_blas();

// c [m, n] = alpha a b + beta c, a [m, k], b [k, n] after transposition. Uses libtorch's threads,
// one inside a parallel region. T is float or double. Only with has_blas(). [compute]
template <class T>
void matmul(int64_t m,
            int64_t n,
            int64_t k,
            T alpha,
            Operand<T> a,
            Operand<T> b,
            T beta,
            T* c,
            int64_t c_stride);

}  // namespace limbeck
