// SPDX-License-Identifier: Apache-2.0
#define LIMBECK_LOOPS baseline
#include "core/ops/kernels/loops.inl"
