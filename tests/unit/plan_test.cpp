// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <string>

#include "core/base/error.hpp"
#include "core/step/plan.hpp"
#include "toy_network.hpp"

#include <doctest/doctest.h>

using namespace limbeck;
using limbeck::testing::toy_spec;

namespace {

using Planner = std::function<lb_status*(int64_t step, lb_plan* plan)>;
Planner planner;

lb_status* create(lb_state*, const lb_config*, void** out) {
  static int instance;
  *out = &instance;
  return nullptr;
}
void destroy(void*) {}
lb_status* run_planner(void*, int64_t step, lb_plan* plan) { return planner(step, plan); }

// A method whose plan() is `planner`, or none at all.
const ComponentSpec& method_spec(bool plans) {
  static const lb_method_vtable with = {sizeof(lb_method_vtable),
                                        0,
                                        {sizeof(lb_role), 0, nullptr},
                                        nullptr,
                                        create,
                                        destroy,
                                        nullptr,
                                        run_planner,
                                        nullptr,
                                        nullptr,
                                        nullptr};
  static const lb_method_vtable without = {sizeof(lb_method_vtable),
                                           0,
                                           {sizeof(lb_role), 0, nullptr},
                                           nullptr,
                                           create,
                                           destroy,
                                           nullptr,
                                           nullptr,
                                           nullptr,
                                           nullptr,
                                           nullptr};
  static lb_component tables[2];
  static Library library;
  static Component components[2];
  static ComponentSpec specs[2];
  const int i = plans ? 1 : 0;
  tables[i].struct_size = sizeof(lb_component);
  tables[i].kind = "limbeck.method/1";
  tables[i].name = "planned";
  tables[i].vtable = plans ? &with : &without;
  components[i] = {&tables[i], &library};
  specs[i].key = "method";
  specs[i].component = &components[i];
  specs[i].config = std::make_shared<lb_config>();
  return specs[i];
}

struct Roles {
  Roles() : trained(toy_spec(true), Mesh()), frozen(toy_spec(false), Mesh()) {}
  std::vector<Role*> list() { return {&trained, &frozen, nullptr}; }
  Role trained;
  Role frozen;
};

std::string failure(const Planner& plan) {
  Roles roles;
  planner = plan;
  const Method method(method_spec(true));
  try {
    plan_step(method, roles.list(), 4, 1);
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

}  // namespace

TEST_CASE("plan: without plan() there is one round that updates every trained role") {
  Roles roles;
  const Method method(method_spec(false));
  const auto rounds = plan_step(method, roles.list(), 4, 1);

  REQUIRE(rounds.size() == 1);
  CHECK(rounds[0].micro_steps == 4);
  CHECK(rounds[0].roles == 1U);
}

TEST_CASE("plan: rounds hold what the method says") {
  Roles roles;
  planner = [](int64_t, lb_plan* plan) {
    check(plan->round(plan, 0, 0));
    check(plan->round(plan, 4, LB_ROUND_SAME_DATA));
    check(plan->round(plan, 3, LB_ROUND_OWN_DATA));
    return plan->update(plan, 0);
  };
  const Method method(method_spec(true));
  const auto rounds = plan_step(method, roles.list(), 4, 1);

  REQUIRE(rounds.size() == 3);
  CHECK(rounds[0].micro_steps == 4);
  CHECK(rounds[0].roles == 0U);
  CHECK(rounds[1].repeats_data());
  CHECK(rounds[2].micro_steps == 3);
  CHECK(rounds[2].owns_data());
  CHECK(rounds[2].updates(0));
}

TEST_CASE("plan: updates are counted ahead, for schedules") {
  Roles roles;
  planner = [](int64_t step, lb_plan* plan) {
    check(plan->round(plan, 0, 0));
    return step % 5 == 0 ? plan->update(plan, 0) : nullptr;
  };
  const Method method(method_spec(true));
  CHECK(count_updates(method, roles.list(), 1, 23) == std::vector<int64_t>{4, 0, 0});
}

TEST_CASE("plan: what a method must not plan is an error") {
  CHECK(failure([](int64_t, lb_plan* plan) { return plan->update(plan, 0); }) ==
        "update() was called before round()");
  CHECK(failure([](int64_t, lb_plan* plan) {
          check(plan->round(plan, 1, 0));
          return plan->update(plan, 1);
        }) == "update(): role 'net' is not trained");
  CHECK(failure([](int64_t, lb_plan* plan) {
          check(plan->round(plan, 1, 0));
          return plan->update(plan, 2);
        }) == "update(): role number 2 is not filled");
  CHECK(failure([](int64_t, lb_plan* plan) { return plan->round(plan, 1, LB_ROUND_SAME_DATA); }) ==
        "round(): the first round has no batches of a round before");
  CHECK(failure([](int64_t, lb_plan* plan) {
          check(plan->round(plan, 1, 0));
          return plan->average(plan, 1, 0.9);
        }) == "average(): role 'net' is no shadow role");
  CHECK(failure([](int64_t, lb_plan* plan) { return plan->round(plan, 1, 8); }).find("flags 8") !=
        std::string::npos);
}
