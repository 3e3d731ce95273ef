// SPDX-License-Identifier: Apache-2.0
// All roles of a run, and a component's view of some of them.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include <limbeck/abi.h>

#include "core/manifest/manifest.hpp"
#include "core/role/role.hpp"

namespace limbeck {

using RoleSet = std::vector<std::unique_ptr<Role>>;  // in manifest order

Role* find_role(const RoleSet& roles, std::string_view name);  // nullptr: no such role

// The roles of a component's own table (a method's `roles`, a hook's or callback's `needs`), by
// index; empty places are optional roles that the manifest does not fill.
std::vector<Role*> resolve_roles(const lb_roles& table,
                                 const ComponentSpec& spec,
                                 const RoleSet& roles);

}  // namespace limbeck
