// SPDX-License-Identifier: Apache-2.0
// Tables of a manifest that use a component: where they are and how they are checked.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <limbeck/abi.h>

#include "core/manifest/draft.hpp"

namespace limbeck {

inline constexpr const char* kMethodKind = "limbeck.method/1";
inline constexpr const char* kPrepareKind = "limbeck.prepare/1";
inline constexpr const char* kLossKind = "limbeck.loss/1";
inline constexpr const char* kCallbackKind = "limbeck.callback/1";
inline constexpr const char* kDatasetKind = "limbeck.dataset/1";
inline constexpr const char* kTrackerKind = "limbeck.tracker/1";
inline constexpr const char* kModelKind = "limbeck.model/1";
inline constexpr const char* kVaeKind = "limbeck.vae/1";
inline constexpr const char* kTextEncoderKind = "limbeck.text-encoder/1";
inline constexpr const char* kRewardKind = "limbeck.reward/1";

// One table that uses a component.
struct ComponentTable {
  std::string key;                      // "prepare[0]"
  std::string path;                     // the same for find_path(): "prepare.0"
  const Node* table = nullptr;          // never null
  Position at;                          // of its header, or of where it is asked for
  std::vector<std::string_view> kinds;  // one of which its component has
  std::string name;                     // of the component; empty: not said
  Position name_at;
};

// All of them, in the order in which they are created. Tables of the wrong shape are left out.
std::vector<ComponentTable> component_tables(const Draft& draft);

// The inner table `name`, or an empty one.
const Node& inner_table(const Node& table, std::string_view name);

// A table in words: the component's options, and `host` beside them. Sets draft.host[table.key].
ComponentSpec read_component(Draft& draft,
                             const ComponentTable& table,
                             std::vector<lb_option> host);

// `component "x" of plugin "y"`
std::string owner_of(const Component& component);
// `method "x"`, `data set "x"`
std::string describe(const Component& component);
// The roles that a component names; none for kinds that have none.
std::vector<lb_role> roles_of(const Component& component);
// The manifest's name for a role that a component names.
std::string role_name(const ComponentSpec& spec, const std::string& name);

}  // namespace limbeck
