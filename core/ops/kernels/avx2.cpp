// SPDX-License-Identifier: Apache-2.0
#define LIMBECK_LOOPS avx2
#include "core/ops/kernels/loops.inl"
