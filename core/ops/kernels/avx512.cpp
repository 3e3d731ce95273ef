// SPDX-License-Identifier: Apache-2.0
#define LIMBECK_LOOPS avx512
#include "core/ops/kernels/loops.inl"
