// SPDX-License-Identifier: Apache-2.0
#define LIMBECK_LOOPS avx2
#define LIMBECK_VECTOR_BYTES 32
#include "core/ops/kernels/loops.inl"
