// SPDX-License-Identifier: Apache-2.0
#include "host/plugin_files.hpp"

#include <filesystem>

#include "core/base/error.hpp"
#include "core/base/log.hpp"
#include "core/base/text.hpp"

namespace limbeck::host {

void load_plugins(const std::vector<std::string>& names, Registry& registry) {
  Diagnostics diagnostics;
  for (const auto& name : names) {
    registry.load({name, "", {}}, std::filesystem::current_path(), diagnostics);
  }
  std::vector<std::string> faults;
  for (const auto& item : diagnostics.items()) {
    const std::string text =
        item.hint.empty() ? item.message : cat(item.message, "\n  hint: ", item.hint);
    if (item.is_error) {
      faults.push_back(text);
    } else {
      log::warn("plugin", text);
    }
  }
  if (!faults.empty()) {
    throw Error(Fault::kPlugin, join(faults, "\n"));
  }
}

}  // namespace limbeck::host
