// SPDX-License-Identifier: Apache-2.0
// Instances of components whose state belongs into a checkpoint.
#pragma once

#include <functional>
#include <string>

#include <limbeck/abi.h>

#include "core/plugin/instance.hpp"

namespace limbeck {

struct Stateful {
  std::string place;  // in the run: "method", "prepare.0", "callbacks.validation"
  const Component* component = nullptr;
  std::string title;  // for frames of errors
  // Both empty for a component without state. They live as long as the instance. [control]
  std::function<lb_status*(lb_writer*)> save;
  std::function<lb_status*(const lb_reader*)> load;
};

template <class Vtable>
Stateful stateful(std::string place, const Instance<Vtable>& instance) {
  Stateful result{std::move(place), instance.spec().component, instance.title(), {}, {}};
  const Vtable* vtable = &instance.vtable();
  if (LB_CAN(vtable, save) && LB_CAN(vtable, load)) {
    void* self = instance.self();
    result.save = [vtable, self](lb_writer* writer) { return vtable->save(self, writer); };
    result.load = [vtable, self](const lb_reader* reader) { return vtable->load(self, reader); };
  }
  return result;
}

}  // namespace limbeck
