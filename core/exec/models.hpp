// SPDX-License-Identifier: Apache-2.0
// The lb_models that a method, hook or callback runs networks through.
#pragma once

#include <vector>

#include <limbeck/abi.h>

#include "core/role/role.hpp"

namespace limbeck {

class Models {
 public:
  // `roles` by index in the component's own table; nullptr where a role is not filled.
  explicit Models(std::vector<Role*> roles);
  Models(const Models&) = delete;
  Models& operator=(const Models&) = delete;

  const lb_models& table() const { return table_; }
  const std::vector<Role*>& roles() const { return roles_; }

 private:
  std::vector<Role*> roles_;
  lb_models table_;
};

}  // namespace limbeck
