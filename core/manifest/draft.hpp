// SPDX-License-Identifier: Apache-2.0
// A manifest while it is being checked: what the stages of load_manifest() hand on.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <limbeck/abi.h>

#include "core/manifest/config.hpp"
#include "core/manifest/diagnostics.hpp"
#include "core/manifest/manifest.hpp"
#include "core/manifest/node.hpp"
#include "core/manifest/schema.hpp"
#include "core/plugin/registry.hpp"

namespace limbeck {

// Where an entry of `plugins` in the resolved manifest comes from.
struct PluginEntry {
  std::string name;    // paths are absolute
  std::string sha256;  // empty: not pinned
};

struct Draft {
  std::string file;              // as the user wrote it
  std::filesystem::path folder;  // of the file, absolute
  Node root;
  Registry* registry = nullptr;
  Diagnostics diagnostics;
  std::vector<PluginEntry> plugins;

  // By the key of its table ("method", "prepare[0]"). A null component could not be found, which
  // has been reported.
  std::map<std::string, const Component*> components;
  std::vector<KeyHome> homes;      // of their options
  bool has_all_components = true;  // also: all plugins

  // The checked keys of the host's own, by table. Beside them, components have their config.
  std::map<std::string, ConfigValue::Table> host;
  // Tables of a role after inheritance: "models.<role>.optimizer", "models.<role>.ema". Their
  // values keep the places where they were written.
  std::map<std::string, ConfigValue::Table> settled;

  bool has_output_override = false;  // --override-output-dir
  bool needs_files = true;           // see ManifestOptions
  bool defers_weights = false;

  Manifest manifest;

  Position file_position() const { return {file, 0, 0}; }
  CheckScope scope() { return {folder, diagnostics, true, &homes}; }
};

// ---- the stages, in order ----

// Tables where tables must be; makes the host's tables that are missing, as empty ones, so that
// later stages need not ask. Throws when the shape is wrong: the rest would make no sense.
void check_shape(Draft& draft);
// Reads `plugins` and loads them.
void load_plugins(Draft& draft);
// Finds the component of every table that uses one.
void find_components(Draft& draft);
// Gives settings that have two names one value under both.
void apply_aliases(Draft& draft);
// [run], [pipeline], [training.*] less the data set, the core's own callbacks.
void read_host_tables(Draft& draft, const std::filesystem::path& output_dir);
// [models.*], as far as it does not depend on who trains them.
void read_role_tables(Draft& draft);
// [method], [[prepare]], [[losses]], [callbacks.*], [training.data], trackers.
void read_components(Draft& draft);
// Which roles are trained, shadows, used by nobody; what they need and provide.
void check_roles(Draft& draft);
// Optimizer, averages and recompute of every role.
void settle_training(Draft& draft);
// Rules between the values of several tables.
void check_rules(Draft& draft);
// Numbers for plugins.
void collect_facts(Draft& draft);
// Keys whose values nobody writes down.
void collect_secrets(Draft& draft);
// The manifest with every default filled in, as a tree. A value's place is where it was written;
// empty: it is a default.
Node resolve(const Draft& draft);

}  // namespace limbeck
