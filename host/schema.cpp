// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/manifest/document.hpp"
#include "core/plugin/registry.hpp"
#include "host/commands.hpp"
#include "host/engine.hpp"

namespace limbeck::host {

void schema(const Options& options) {
  auto& registry = *new Registry;  // never destroyed: its libraries stay open
  open_on_demand(registry);
  Diagnostics diagnostics;
  for (const auto& name : options.plugins) {
    registry.load({name, "", {}}, std::filesystem::current_path(), diagnostics);
  }
  diagnostics.throw_if_errors();
  std::cout << (options.is_json ? to_json_schema(registry) : to_markdown(registry));
}

}  // namespace limbeck::host
