// SPDX-License-Identifier: Apache-2.0
// The one way in which a table of a manifest is checked against a table of options, be it of a
// plugin or of the core: unknown keys, types, ranges, choices, missing keys, defaults.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <limbeck/abi.h>

#include "core/manifest/config.hpp"
#include "core/manifest/diagnostics.hpp"
#include "core/manifest/node.hpp"

namespace limbeck {

// An option of a component in use and the table it belongs into, for somebody who wrote it
// elsewhere.
struct KeyHome {
  std::string key;
  std::string table;
};

struct CheckScope {
  std::filesystem::path folder;  // what a LB_PATH is relative to; absolute
  Diagnostics& diagnostics;
  bool is_given = true;                         // false while a default is checked
  const std::vector<KeyHome>* homes = nullptr;  // may be null
};

// "a" and "b" -> "a.b"; an empty first part is left out.
std::string join_key(const std::string& table, std::string_view name);

// Reports keys of `table` that none of `known` declares. `key` is the table's, for messages.
void check_keys(const Node& table,
                const std::vector<lb_option>& known,
                const std::string& key,
                const CheckScope& scope);

// The value of every option: given and checked, or its default. A value that is at fault is
// reported and replaced by zero, so that checking can go on. Keys that no option declares are
// passed over. `table` is a table.
ConfigValue::Table check_values(const Node& table,
                                const std::vector<lb_option>& options,
                                const std::string& key,
                                const CheckScope& scope);

// check_keys and check_values with the same options.
ConfigValue::Table check_table(const Node& table,
                               const std::vector<lb_option>& options,
                               const std::string& key,
                               const CheckScope& scope);

// nullptr: there is no such value.
const ConfigValue* find_value(const ConfigValue::Table& table, std::string_view name);

}  // namespace limbeck
