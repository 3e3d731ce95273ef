// SPDX-License-Identifier: Apache-2.0
// Plugins that are named on the command line.
#pragma once

#include <string>
#include <vector>

#include "core/plugin/registry.hpp"

namespace limbeck::host {

// Loads names and paths, relative to the working folder. What can be loaded is, then every fault of
// the others is thrown as one Error(kPlugin). Warnings are logged.
void load_plugins(const std::vector<std::string>& names, Registry& registry);

}  // namespace limbeck::host
