// SPDX-License-Identifier: Apache-2.0
#define LIMBECK_LOOPS avx512
#define LIMBECK_VECTOR_BYTES 64
#include "core/ops/kernels/loops.inl"
