// SPDX-License-Identifier: Apache-2.0
#include "core/ops/matmul.hpp"

#include <c10/util/Exception.h>

#ifdef LIMBECK_HAS_BLAS
// Fortran's names: column-major, everything by address.
extern "C" {
void sgemm_(const char* trans_a,
            const char* trans_b,
            const int* m,
            const int* n,
            const int* k,
            const float* alpha,
            const float* a,
            const int* lda,
            const float* b,
            const int* ldb,
            const float* beta,
            float* c,
            const int* ldc);
void dgemm_(const char* trans_a,
            const char* trans_b,
            const int* m,
            const int* n,
            const int* k,
            const double* alpha,
            const double* a,
            const int* lda,
            const double* b,
            const int* ldb,
            const double* beta,
            double* c,
            const int* ldc);
}
#endif

namespace limbeck {

#ifdef LIMBECK_HAS_BLAS
namespace {

// A row-major product is the column-major product of the transposed operands in reverse order.
template <class T, class Gemm>
void call_gemm(Gemm gemm,
               int64_t m,
               int64_t n,
               int64_t k,
               T alpha,
               const Operand<T>& a,
               const Operand<T>& b,
               T beta,
               T* c,
               int64_t c_stride) {
  const int rows = static_cast<int>(n);
  const int columns = static_cast<int>(m);
  const int inner = static_cast<int>(k);
  const int lda = static_cast<int>(b.stride);
  const int ldb = static_cast<int>(a.stride);
  const int ldc = static_cast<int>(c_stride);
  gemm(b.transposed ? "t" : "n", a.transposed ? "t" : "n", &rows, &columns, &inner, &alpha, b.data,
       &lda, a.data, &ldb, &beta, c, &ldc);
}

}  // namespace

bool has_blas() { return true; }

template <>
void matmul<float>(int64_t m,
                   int64_t n,
                   int64_t k,
                   float alpha,
                   Operand<float> a,
                   Operand<float> b,
                   float beta,
                   float* c,
                   int64_t c_stride) {
  call_gemm(sgemm_, m, n, k, alpha, a, b, beta, c, c_stride);
}
template <>
void matmul<double>(int64_t m,
                    int64_t n,
                    int64_t k,
                    double alpha,
                    Operand<double> a,
                    Operand<double> b,
                    double beta,
                    double* c,
                    int64_t c_stride) {
  call_gemm(dgemm_, m, n, k, alpha, a, b, beta, c, c_stride);
}
#else
bool has_blas() { return false; }

template <class T>
void matmul(int64_t, int64_t, int64_t, T, Operand<T>, Operand<T>, T, T*, int64_t) {
  TORCH_CHECK(false, "this build has no BLAS");
}
template void matmul<float>(
    int64_t, int64_t, int64_t, float, Operand<float>, Operand<float>, float, float*, int64_t);
template void matmul<double>(
    int64_t, int64_t, int64_t, double, Operand<double>, Operand<double>, double, double*, int64_t);
#endif

}  // namespace limbeck
