// SPDX-License-Identifier: Apache-2.0
#include "core/step/plan.hpp"

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/manifest/strided.hpp"

namespace limbeck {
namespace {

struct Planning {
  const Method& method;
  const std::vector<Role*>& roles;
  int64_t accumulation;
  std::vector<Round> rounds;

  static Planning& of(lb_plan* plan) { return *static_cast<Planning*>(plan->ctx); }

  Round& last(const char* what) {
    if (rounds.empty()) {
      throw Error(Fault::kPlugin, cat(what, "() was called before round()"));
    }
    return rounds.back();
  }
  Role& role(uint32_t index, const char* what) const {
    if (index >= roles.size() || roles[index] == nullptr) {
      throw Error(Fault::kPlugin, cat(what, "(): role number ", index, " is not filled"));
    }
    return *roles[index];
  }
};

lb_status* plan_round(lb_plan* plan, uint32_t micro_steps, uint32_t flags) noexcept {
  return guard([&] {
    auto& planning = Planning::of(plan);
    constexpr uint32_t kKnown = LB_ROUND_OWN_DATA | LB_ROUND_SAME_DATA;
    if ((flags & ~kKnown) != 0 || flags == kKnown) {
      throw Error(Fault::kPlugin, cat("round(): flags ", flags,
                                      " are not known, or exclude each "
                                      "other"));
    }
    if ((flags & LB_ROUND_SAME_DATA) != 0 && planning.rounds.empty()) {
      throw Error(Fault::kPlugin, "round(): the first round has no batches of a round before");
    }
    Round round;
    round.micro_steps =
        micro_steps != 0 ? micro_steps : static_cast<uint32_t>(planning.accumulation);
    round.flags = flags;
    if (round.repeats_data() && round.micro_steps != planning.rounds.back().micro_steps) {
      throw Error(Fault::kPlugin,
                  cat("round(): ", round.micro_steps,
                      " micro-steps cannot repeat "
                      "the ",
                      planning.rounds.back().micro_steps, " batches of the round before"));
    }
    planning.rounds.push_back(std::move(round));
  });
}

lb_status* plan_update(lb_plan* plan, uint32_t index) noexcept {
  return guard([&] {
    auto& planning = Planning::of(plan);
    const auto& role = planning.role(index, "update");
    if (!role.is_trained()) {
      throw Error(Fault::kPlugin, cat("update(): role '", role.name(), "' is not trained"));
    }
    planning.last("update").roles |= LB_BIT(index);
  });
}

lb_status* plan_average(lb_plan* plan, uint32_t shadow, double decay) noexcept {
  return guard([&] {
    auto& planning = Planning::of(plan);
    const auto& role = planning.role(shadow, "average");
    if (!role.spec().is_shadow) {
      throw Error(Fault::kPlugin, cat("average(): role '", role.name(), "' is no shadow role"));
    }
    if (!(decay >= 0.0 && decay <= 1.0)) {
      throw Error(Fault::kPlugin, cat("average(): decay ", decay, " is outside [0, 1]"));
    }
    planning.last("average").averages.emplace_back(shadow, decay);
  });
}

}  // namespace

std::vector<Round> plan_step(const Method& method,
                             const std::vector<Role*>& roles,
                             int64_t accumulation,
                             int64_t step) {
  Planning planning{method, roles, accumulation, {}};
  if (!LB_CAN(&method.vtable(), plan)) {
    Round round;
    round.micro_steps = static_cast<uint32_t>(accumulation);
    for (size_t i = 0; i < roles.size(); ++i) {
      if (roles[i] != nullptr && roles[i]->is_trained()) {
        round.roles |= LB_BIT(i);
      }
    }
    return {round};
  }
  lb_plan table = {sizeof(lb_plan), 0, &planning, plan_round, plan_update, plan_average};
  call_plugin([&] { return method.vtable().plan(method.self(), step, &table); },
              [&] { return cat("while planning step ", step, " ", method.title()); });
  return std::move(planning.rounds);
}

std::vector<int64_t> count_updates(const Method& method,
                                   const std::vector<Role*>& roles,
                                   int64_t accumulation,
                                   int64_t max_steps) {
  std::vector<int64_t> counts(roles.size(), 0);
  for (int64_t step = 1; step <= max_steps; ++step) {
    for (const auto& round : plan_step(method, roles, accumulation, step)) {
      for (size_t role = 0; role < roles.size(); ++role) {
        counts[role] += round.updates(role) ? 1 : 0;
      }
    }
  }
  return counts;
}

}  // namespace limbeck
