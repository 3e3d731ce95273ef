// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/tensor/batch.hpp"
#include "core/track/performance.hpp"

namespace limbeck {

// Takes the entries "work.<name>" out of what a network filled.
ForwardWork take_work(lb_batch& filled);

// Whether any tensor in it has history.
bool has_history(const lb_batch& filled);

}  // namespace limbeck
