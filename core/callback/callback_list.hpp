// SPDX-License-Identifier: Apache-2.0
// The callbacks of a run: who is told what, in manifest order.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <limbeck/abi.h>

#include "core/data/loader.hpp"
#include "core/data/service.hpp"
#include "core/exec/models.hpp"
#include "core/manifest/manifest.hpp"
#include "core/plugin/instance.hpp"
#include "core/plugin/stateful.hpp"
#include "core/role/role_set.hpp"
#include "core/track/metrics.hpp"

namespace limbeck {

// What an event says besides its kind.
struct EventFacts {
  int64_t step = 0;
  const std::map<std::string, double>* values = nullptr;  // null: none
  std::string text;                                       // empty: none
};

class CallbackList {
 public:
  // Creates every callback of the manifest. `loader` may be null. Throws Error. [control]
  CallbackList(const Manifest& manifest,
               const RoleSet& roles,
               Loader* loader,
               const lb_batch& facts,
               Metrics& metrics);
  CallbackList(const CallbackList&) = delete;
  CallbackList& operator=(const CallbackList&) = delete;

  // Tells everyone who wants this kind of event; LB_ON_VALIDATE only those whose every_steps
  // divides the step, or all of them if validation was requested. A callback that fails ends the
  // run, except in LB_ON_ERROR. [control]
  void tell(lb_event_kind kind, const EventFacts& facts);
  // Asks everyone who wants LB_ON_SAVE whether a checkpoint may be made now: false if one would
  // rather be asked after the next step. [control]
  bool may_save(int64_t step);
  // All of them, in order, for checkpoints.
  std::vector<Stateful> stateful() const;
  // LB_WANT_ bits that callbacks asked for since the last call.
  uint32_t take_requests();

  // The extension of the first callback whose component has it, and its instance; {nullptr,
  // nullptr} if there is none. `event` is filled for a call outside the loop.
  struct Extension {
    const void* table = nullptr;
    void* self = nullptr;
    lb_event event{};
  };
  Extension find_extension(const char* id);

 private:
  struct Entry {
    Entry(const CallbackSpec& spec, const RoleSet& roles)
        : name(spec.name),
          instance(spec.component),
          models(resolve_roles(instance.vtable().needs, spec.component, roles)),
          every_steps(spec.every_steps) {}

    std::string name;
    Instance<lb_callback_vtable> instance;
    Models models;
    int64_t every_steps;
  };

  bool wants(const Entry& entry, lb_event_kind kind, int64_t step) const;
  lb_event make_event(const Entry& entry,
                      lb_event_kind kind,
                      const EventFacts& facts,
                      const lb_batch* values);

  std::vector<std::unique_ptr<Entry>> entries_;
  std::unique_ptr<DataService> data_;
  const lb_batch& facts_;
  Metrics& metrics_;
  int64_t max_steps_;
  uint32_t requests_ = 0;
  bool validation_was_requested_ = false;
};

}  // namespace limbeck
