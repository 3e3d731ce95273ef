// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "core/plugin/info_text.hpp"
#include "host/commands.hpp"
#include "host/engine.hpp"
#include "host/plugin_files.hpp"

namespace limbeck::host {

void plugin_info(const Options& options) {
  auto& registry = *new Registry;  // never destroyed: its libraries stay open
  open_on_demand(registry);
  load_plugins(options.plugins, registry);
  const char* between = "";
  for (const auto& library : registry.libraries()) {
    std::cout << between << info_text(library);
    between = "\n";
    for (const auto& component : registry.components()) {
      if (component.library == &library) {
        std::cout << between << info_text(component);
      }
    }
  }
}

}  // namespace limbeck::host
