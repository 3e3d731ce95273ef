// SPDX-License-Identifier: Apache-2.0
// Training methods.
//
//   class Flow : public lb::Method {
//    public:
//     static constexpr lb_role roles[] = {
//         {"student", "The network that learns.", "limbeck.video-dit/1", lb::kTrained, 0}};
//     lb::Tensor loss(const lb::Step& step) override { ... }
//   };
//   LB_PLUGIN(lb::method<Flow>("flow", "Flow matching."))
#pragma once

#include <limbeck/component.hpp>

namespace lb {
inline namespace v1 LB_HIDDEN {

// The rounds of a step, lent to plan(). A round is micro-steps, then one optimiser update of each
// of its roles, then its averages. Each call returns the plan, for chaining.
class Plan {
 public:
  explicit Plan(lb_plan* plan) : plan_(plan) {}
  // Begins a round. `micro_steps` 0: gradient_accumulation_steps of the manifest; `flags` are
  // LB_ROUND_*.
  Plan& round(uint32_t micro_steps = 0, uint32_t flags = 0) {
    check(plan_->round(plan_, micro_steps, flags));
    return *this;
  }
  // The round updates this role.
  Plan& update(uint32_t role) {
    check(plan_->update(plan_, role));
    return *this;
  }
  // After the updates: shadow = decay * shadow + (1 - decay) * the role it follows, in fp32.
  Plan& average(uint32_t shadow, double decay) {
    check(plan_->average(plan_, shadow, decay));
    return *this;
  }

 private:
  lb_plan* plan_;
};

// Base class. A subclass declares `static constexpr lb_role roles[]`.
class Method {
 public:
  Method() = default;
  Method(const Method&) = delete;
  Method& operator=(const Method&) = delete;
  virtual ~Method() = default;

  // Once, when networks are loaded and state was read: check facts, encode a prompt. [control]
  virtual void start(const Step&) {}
  // The rounds of step `step` (from 1), a pure function of options, facts and `step`. Not
  // overridden: one round that updates every trained role. [any]
  virtual void plan(int64_t step, Plan& plan);
  // One micro-step. The scalar returned is differentiated for the roles of the round; a method that
  // called step.backward() itself returns an undefined tensor. [control]
  virtual Tensor loss(const Step& step) = 0;
  // State, between steps. Not overridden: stateless. save() may throw Error(LB_UNAVAILABLE) on
  // every rank: not now, ask after the next step. [control]
  virtual void save(Writer&) {}
  virtual void load(const Reader&) {}
};
inline void Method::plan(int64_t, Plan&) {}

// Registers T under `name`; `doc` is Markdown whose first line is the summary.
template <class T>
const lb_component* method(const char* name, const char* doc) {
  static const lb_method_vtable vtable = [] {
    lb_method_vtable v{};
    v.struct_size = sizeof(v);
    v.roles = detail::role_table(T::roles);
    v.reads = detail::reads_list<T>();
    v.create = [](lb_state*, const lb_config* config, void** out) noexcept {
      return guard("create()", detail::component_name<T>,
                   [&] { *out = detail::make<T>(config).release(); });
    };
    v.destroy = detail::destroy<T>;
    if constexpr (LB_OVERRIDES(T, Method, start)) {
      v.start = [](void* self, const lb_step* step) noexcept {
        return guard("start()", detail::component_name<T>,
                     [&] { static_cast<T*>(self)->start(Step(step)); });
      };
    }
    if constexpr (LB_OVERRIDES(T, Method, plan)) {
      v.plan = [](void* self, int64_t step, lb_plan* plan) noexcept {
        return guard("plan()", detail::component_name<T>, [&] {
          Plan rounds(plan);
          static_cast<T*>(self)->plan(step, rounds);
        });
      };
    }
    v.loss = [](void* self, const lb_step* step, lb_tensor** out) noexcept {
      return guard("loss()", detail::component_name<T>,
                   [&] { *out = static_cast<T*>(self)->loss(Step(step)).release(); });
    };
    if constexpr (LB_OVERRIDES(T, Method, save)) {
      v.save = detail::save<T>;
    }
    if constexpr (LB_OVERRIDES(T, Method, load)) {
      v.load = detail::load<T>;
    }
    return v;
  }();
  return detail::component<T>("limbeck.method/1", name, doc, &vtable);
}

}  // namespace v1
}  // namespace lb
