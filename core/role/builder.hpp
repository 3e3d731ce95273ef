// SPDX-License-Identifier: Apache-2.0
// The lb_builder that a network declares its parameters with.
#pragma once

#include <filesystem>
#include <string>

#include <limbeck/abi.h>

#include "core/role/layout.hpp"

namespace limbeck {

// Runs the component's create() and returns what it declared. `self` receives the instance, which
// the caller destroys. `directory` is where files beside the weights are looked for; may be empty.
// Throws Error. [control]
RoleLayout declare_network(const lb_model_vtable& vtable,
                           lb_state* plugin,
                           const lb_config& config,
                           const std::filesystem::path& directory,
                           void** self);

}  // namespace limbeck
