// SPDX-License-Identifier: Apache-2.0
// Options of a component that nobody gave: for trying it without a manifest.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <limbeck/abi.h>

#include "core/base/export.hpp"
#include "core/plugin/registry.hpp"

namespace limbeck {

struct DefaultConfig {
  std::shared_ptr<const lb_config> config;
  // Options without a default, which were given a value inside their range: "data_path".
  std::vector<std::string> made_up;
};

// Every option at its default. The component's table is sound.
LIMBECK_API DefaultConfig default_config(const Component& component);

}  // namespace limbeck
