// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules: lr = base * multiplier(n), n = the role's own updates made so far.
#pragma once

#include <cstdint>

#include "core/manifest/manifest.hpp"

namespace limbeck {

// The multiplier of update number `n` (from 0) of a role that will be updated `horizon` times.
// With w = lr_warmup_steps, p = min(1, (n - w) / max(1, horizon - w)):
//   constant               1
//   constant_with_warmup   n / w, then 1
//   linear                 n / w, then max(0, 1 - p)
//   cosine                 n / w, then (1 + cos(pi p)) / 2
//   cosine_with_min_lr     n / w, then max(min_lr_ratio, cosine): clipped, not rescaled
//   cosine_with_restarts   n / w, then (1 + cos(pi (c p mod 1))) / 2, c = lr_num_cycles; 0 at p = 1
//   polynomial             n / w, then ((lr - e)(1 - p)^lr_power + e) / lr, e = 1e-7
//   piecewise_constant     step_rules "m1:n1,m2:n2,mLast": m of the smallest n_i > n; no warm-up
// With w > 0 the first update has a learning rate of zero. Throws Error(kManifest) for an unknown
// name or rules that cannot be read. [any]
double lr_multiplier(const OptimizerSpec& spec, int64_t n, int64_t horizon);

}  // namespace limbeck
