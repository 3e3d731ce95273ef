// SPDX-License-Identifier: Apache-2.0
#define LIMBECK_LOOPS baseline
#define LIMBECK_VECTOR_BYTES 16
#include "core/ops/kernels/loops.inl"
