// SPDX-License-Identifier: Apache-2.0
// The stage that reads [models.*], as far as it does not depend on who trains them.
#include <system_error>
#include <utility>

#include "core/base/text.hpp"
#include "core/manifest/component_table.hpp"
#include "core/manifest/host_values.hpp"
#include "core/manifest/option_table.hpp"
#include "core/manifest/strided.hpp"
#include "core/manifest/tables.hpp"
#include "core/manifest/weights_config.hpp"

namespace limbeck {
namespace {

constexpr std::string_view kPrefix = "models.";

Precision precision_of(const std::string& name) {
  return name == "bf16"   ? Precision::kBFloat16
         : name == "fp64" ? Precision::kFloat64
                          : Precision::kFloat32;
}

// The folder with weights, which must exist; empty when there is none. What it says of the network
// can be done without if the manifest says it too.
std::filesystem::path read_init_from(Draft& draft,
                                     const HostValues& host,
                                     const ComponentTable& table) {
  const std::string folder = host.text_or("init_from", "");
  if (folder.empty()) {
    return {};
  }
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    if (!draft.needs_files) {
      return folder;
    }
    const bool is_deferred = draft.defers_weights && table.table->find("config") != nullptr;
    auto& faults = is_deferred ? draft.manifest.missing : draft.diagnostics;
    faults.error(host.position("init_from"), cat(table.key, ".init_from: no such folder: ", folder),
                 "paths are relative to the manifest's folder");
    return {};
  }
  return folder;
}

// The options of the network: the manifest's over those of config.json. What config.json says
// beside the options is about other programs.
Node merge_config(const Node& given, Node weights, const std::vector<lb_option>& options) {
  Node merged = given;
  for (auto& member : std::get<Node::Table>(weights.value)) {
    const bool is_option = find_option(options, member.key) != nullptr;
    if (is_option && merged.find(member.key) == nullptr) {
      set_member(merged, std::move(member));
    }
  }
  return merged;
}

ComponentSpec read_network(Draft& draft,
                           const ComponentTable& table,
                           const std::filesystem::path& init_from) {
  ComponentSpec spec;
  spec.key = table.key;
  spec.at = table.at;
  spec.component = draft.components[table.key];
  auto config = std::make_shared<lb_config>();
  config->key = table.key + ".config";
  if (spec.component != nullptr) {
    const auto options = read_options(spec.component->table->options);
    Node given = inner_table(*table.table, "config");
    if (table.table->find("config") == nullptr) {
      given.at = table.at;
    }
    if (!init_from.empty()) {
      given = merge_config(
          given, read_weights_config(init_from, spec.component->table->kind, draft.diagnostics),
          options);
    }
    std::error_code ignored;
    const bool is_whole = init_from.empty() || std::filesystem::is_directory(init_from, ignored);
    config->table =
        check_table(given, is_whole ? options : all_optional(options), config->key, draft.scope());
  }
  spec.config = std::move(config);
  return spec;
}

// Checks the host's keys of a role. An option of the network among them gets a better hint.
void read_host_keys(Draft& draft, const ComponentTable& table) {
  const Component* component = draft.components[table.key];
  const auto own =
      component == nullptr ? std::vector<lb_option>() : read_options(component->table->options);
  Node rest = *table.table;
  for (const auto& member : *table.table->table()) {
    const bool is_host_key = find_option(role_options(), member.key) != nullptr;
    if (!is_host_key && find_option(own, member.key) != nullptr) {
      draft.diagnostics.error(member.key_at,
                              cat("unknown key \"", table.key, ".", member.key, "\""),
                              cat("options of a network go into [", table.key, ".config]"));
      remove_member(rest, member.key);
    }
  }
  draft.host[table.key] = check_table(rest, role_options(), table.key, draft.scope());
}

RoleSpec read_role(Draft& draft, const ComponentTable& table) {
  read_host_keys(draft, table);
  const HostValues host(draft.host[table.key]);
  RoleSpec role;
  role.name = table.key.substr(kPrefix.size());
  role.at = table.at;
  role.init_from = read_init_from(draft, host, table);
  role.dtype = precision_of(host.text("dtype"));
  if (host.find("compute_dtype") != nullptr) {
    role.compute_dtype = precision_of(host.text("compute_dtype"));
  }
  role.model = read_network(draft, table, role.init_from);
  return role;
}

}  // namespace

void read_role_tables(Draft& draft) {
  for (const auto& table : component_tables(draft)) {
    if (table.key.starts_with(kPrefix)) {
      draft.manifest.roles.push_back(read_role(draft, table));
    }
  }
  if (draft.manifest.roles.empty()) {
    draft.diagnostics.error(draft.file_position(), "no roles: expected a table [models.<role>]",
                            "each network of a run has one");
  }
}

}  // namespace limbeck
