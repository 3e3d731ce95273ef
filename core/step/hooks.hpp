// SPDX-License-Identifier: Apache-2.0
// Prepare and loss hooks of a run, with the models they asked for.
#pragma once

#include <memory>
#include <vector>

#include "core/exec/models.hpp"
#include "core/manifest/manifest.hpp"
#include "core/plugin/instance.hpp"
#include "core/role/role_set.hpp"

namespace limbeck {

struct PrepareHook {
  PrepareHook(const ComponentSpec& spec, const RoleSet& roles)
      : instance(spec), models(resolve_roles(instance.vtable().needs, spec, roles)) {}

  Instance<lb_prepare_vtable> instance;
  Models models;
};

struct LossHook {
  LossHook(const LossSpec& spec, const RoleSet& roles)
      : instance(spec.component),
        models(resolve_roles(instance.vtable().needs, spec.component, roles)),
        weight(spec.weight) {}

  Instance<lb_loss_vtable> instance;
  Models models;
  double weight;
};

struct Hooks {
  std::vector<std::unique_ptr<PrepareHook>> prepare;
  std::vector<std::unique_ptr<LossHook>> losses;
};

}  // namespace limbeck
