// SPDX-License-Identifier: Apache-2.0
// What a method wants to happen in a step: a list of rounds. A round is micro-steps, then one
// optimizer update of each of its roles, then its averages.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/manifest/manifest.hpp"
#include "core/plugin/instance.hpp"
#include "core/role/role.hpp"

namespace limbeck {

struct Round {
  uint32_t micro_steps = 1;
  uint32_t flags = 0;  // LB_ROUND_*
  uint32_t roles = 0;  // bit r: role r of the method's table is updated
  std::vector<std::pair<uint32_t, double>> averages;  // shadow role, decay

  bool updates(size_t role) const { return (roles >> role & 1U) != 0; }
  bool owns_data() const { return (flags & LB_ROUND_OWN_DATA) != 0; }
  bool repeats_data() const { return (flags & LB_ROUND_SAME_DATA) != 0; }
};

using Method = Instance<lb_method_vtable>;

// The rounds of step `step` (from 1). `roles` are the method's, by index; `accumulation` stands
// for micro_steps = 0. A method without plan() has one round that updates every trained role.
// Throws Error(kPlugin) for a plan that names a role it may not update. Pure. [any]
std::vector<Round> plan_step(const Method& method,
                             const std::vector<Role*>& roles,
                             int64_t accumulation,
                             int64_t step);

// How often each role of the method is updated in steps 1 ... max_steps, for learning-rate
// schedules.
std::vector<int64_t> count_updates(const Method& method,
                                   const std::vector<Role*>& roles,
                                   int64_t accumulation,
                                   int64_t max_steps);

}  // namespace limbeck
