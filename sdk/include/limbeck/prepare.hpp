// SPDX-License-Identifier: Apache-2.0
// Prepare hooks: from the sample a data set gives to what a method reads.
#pragma once

#include <limbeck/component.hpp>

namespace lb {
inline namespace v1 LB_HIDDEN {

// Base class. A subclass may declare `needs`, `reads` and `writes`.
class Prepare {
 public:
  Prepare() = default;
  Prepare(const Prepare&) = delete;
  Prepare& operator=(const Prepare&) = delete;
  virtual ~Prepare() = default;

  // Changes `batch`, which step.batch() shows as well. Grad mode is off. [control]
  virtual void prepare(const Step& step, Batch& batch) = 0;
  // State, between steps. Not overridden: stateless. [control]
  virtual void save(Writer&) {}
  virtual void load(const Reader&) {}
};

// Registers T under `name`; `doc` is Markdown whose first line is the summary.
template <class T>
const lb_component* prepare(const char* name, const char* doc) {
  static const lb_prepare_vtable vtable = [] {
    lb_prepare_vtable v{};
    v.struct_size = sizeof(v);
    v.needs = detail::needs_table<T>();
    v.reads = detail::reads_list<T>();
    v.writes = detail::writes_list<T>();
    v.create = [](lb_state*, const lb_config* config, void** out) noexcept {
      return guard("create()", detail::component_name<T>,
                   [&] { *out = detail::make<T>(config).release(); });
    };
    v.destroy = detail::destroy<T>;
    v.prepare = [](void* self, const lb_step* step, lb_batch* batch) noexcept {
      return guard("prepare()", detail::component_name<T>, [&] {
        auto entries = Batch::view(batch);
        static_cast<T*>(self)->prepare(Step(step), entries);
      });
    };
    if constexpr (LB_OVERRIDES(T, Prepare, save)) {
      v.save = detail::save<T>;
    }
    if constexpr (LB_OVERRIDES(T, Prepare, load)) {
      v.load = detail::load<T>;
    }
    return v;
  }();
  return detail::component<T>("limbeck.prepare/1", name, doc, &vtable);
}

}  // namespace v1
}  // namespace lb
