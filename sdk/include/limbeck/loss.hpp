// SPDX-License-Identifier: Apache-2.0
// Loss terms: what a manifest lists under [[losses]].
#pragma once

#include <limbeck/component.hpp>

namespace lb {
inline namespace v1 LB_HIDDEN {

// Base class. A subclass may declare `needs` and `reads`.
class Loss {
 public:
  Loss() = default;
  Loss(const Loss&) = delete;
  Loss& operator=(const Loss&) = delete;
  virtual ~Loss() = default;

  // A scalar with history; the host multiplies it by the manifest's weight. `values` is the
  // micro-batch with what the method added: "prediction", "target", ... [control]
  virtual Tensor loss(const Step& step, const Batch& values) = 0;
  // State, between steps. Not overridden: stateless. [control]
  virtual void save(Writer&) {}
  virtual void load(const Reader&) {}
};

// Registers T under `name`; `doc` is Markdown whose first line is the summary.
template <class T>
const lb_component* loss(const char* name, const char* doc) {
  static const lb_loss_vtable vtable = [] {
    lb_loss_vtable v{};
    v.struct_size = sizeof(v);
    v.needs = detail::needs_table<T>();
    v.reads = detail::reads_list<T>();
    v.create = [](lb_state*, const lb_config* config, void** out) noexcept {
      return guard("create()", detail::component_name<T>,
                   [&] { *out = detail::make<T>(config).release(); });
    };
    v.destroy = detail::destroy<T>;
    v.loss = [](void* self, const lb_step* step, const lb_batch* values, lb_tensor** out) noexcept {
      return guard("loss()", detail::component_name<T>, [&] {
        const auto entries = Batch::view(values);
        *out = static_cast<T*>(self)->loss(Step(step), entries).release();
      });
    };
    if constexpr (LB_OVERRIDES(T, Loss, save)) {
      v.save = detail::save<T>;
    }
    if constexpr (LB_OVERRIDES(T, Loss, load)) {
      v.load = detail::load<T>;
    }
    return v;
  }();
  return detail::component<T>("limbeck.loss/1", name, doc, &vtable);
}

}  // namespace v1
}  // namespace lb
