// SPDX-License-Identifier: Apache-2.0
// One forward of one role: the lb_units that a network's forward() is lent, which gives each unit
// its parameters and decides what is kept for backward.
//
//   keep   the body runs once, with ordinary autograd history
//   full   the body runs without history and again in backward; gradients have the same bits for
//          one forward of the role per backward
//
// Units do not nest, a body changes none of its inputs in place, and what it computes depends on
// its inputs and parameters alone; the first two are checked.
#pragma once

#include <cstdint>

#include <limbeck/abi.h>

#include "core/role/role.hpp"

namespace limbeck {

// Runs the network of `role` on `in` and adds what it fills to `out`. `flags` are LB_RUN_ bits.
// History is recorded if grad mode is on and the flags and the role allow it. Throws Error with
// the role's name; `out` is then unchanged. [control]
void run_forward(Role& role, uint32_t flags, const lb_batch& in, lb_batch& out);

}  // namespace limbeck
