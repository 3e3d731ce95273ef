// SPDX-License-Identifier: Apache-2.0
#include "core/role/role_set.hpp"

#include <algorithm>

#include "core/manifest/strided.hpp"

namespace limbeck {

Role* find_role(const RoleSet& roles, std::string_view name) {
  const auto found = std::find_if(roles.begin(), roles.end(),
                                  [&](const auto& role) { return role->name() == name; });
  return found == roles.end() ? nullptr : found->get();
}

std::vector<Role*> resolve_roles(const lb_roles& table,
                                 const ComponentSpec& spec,
                                 const RoleSet& roles) {
  std::vector<Role*> result;
  for (const auto& role : read_roles(table)) {
    const auto renamed = spec.roles.find(role.name);
    result.push_back(find_role(roles, renamed == spec.roles.end() ? role.name : renamed->second));
  }
  return result;
}

}  // namespace limbeck
