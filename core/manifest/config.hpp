// SPDX-License-Identifier: Apache-2.0
// A checked table of options (the lb_config of the ABI) and the service that reads it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <limbeck/abi.h>

#include "core/base/export.hpp"
#include "core/manifest/diagnostics.hpp"

namespace limbeck {

struct ConfigItem;

// A value of a checked table.
struct ConfigValue {
  using List = std::vector<ConfigValue>;
  using Table = std::vector<ConfigItem>;  // in manifest order

  std::variant<bool, int64_t, double, std::string, List, Table> value;
  bool is_given = false;  // by the user, not a default
  Position at;            // of the value; of the table for a default
};

struct ConfigItem {
  std::string key;
  ConfigValue value;
};

// "limbeck.config/1".
LIMBECK_API const lb_config_api& config_api();

}  // namespace limbeck

// Opaque to plugins. Copyable; immutable once handed out. [any]
struct LIMBECK_API lb_config {
  limbeck::ConfigValue::Table table;
  std::string key;  // of the table in the manifest, for messages: "method"

  // The value at a dotted path, also into lists ("steps.2"); nullptr when there is none.
  const limbeck::ConfigValue* find(const std::string& path) const;
  // Typed reads for core; the path must exist with that type (integers read as numbers).
  bool boolean(const std::string& path) const;
  int64_t integer(const std::string& path) const;
  double number(const std::string& path) const;
  std::string text(const std::string& path) const;
};
