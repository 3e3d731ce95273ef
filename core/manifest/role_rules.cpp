// SPDX-License-Identifier: Apache-2.0
// The stage that holds what components need against the roles of the manifest, and learns from
// the method which roles are trained.
#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

#include "core/base/text.hpp"
#include "core/manifest/component_table.hpp"
#include "core/manifest/host_values.hpp"
#include "core/manifest/strided.hpp"

namespace limbeck {
namespace {

bool has_flag(const lb_role& role, uint32_t flag) { return (role.flags & flag) != 0; }

// Everything that can need a role.
std::vector<const ComponentSpec*> users(const Manifest& manifest) {
  std::vector<const ComponentSpec*> all = {&manifest.method};
  for (const auto& spec : manifest.prepare) {
    all.push_back(&spec);
  }
  for (const auto& loss : manifest.losses) {
    all.push_back(&loss.component);
  }
  for (const auto& callback : manifest.callbacks) {
    all.push_back(&callback.component);
  }
  return all;
}

RoleSpec* find_role(Manifest& manifest, const std::string& name) {
  for (auto& role : manifest.roles) {
    if (role.name == name) {
      return &role;
    }
  }
  return nullptr;
}

std::vector<std::string> role_names(const Manifest& manifest) {
  std::vector<std::string> names;
  for (const auto& role : manifest.roles) {
    names.push_back(role.name);
  }
  return names;
}

std::string or_none(const std::vector<std::string>& names) {
  return names.empty() ? "none" : join(names);
}

// "a (trained), b (optional)"
std::string list_of(const std::vector<lb_role>& roles) {
  std::vector<std::string> items;
  for (const auto& role : roles) {
    std::vector<std::string> notes;
    if (has_flag(role, LB_ROLE_TRAINED)) {
      notes.emplace_back("trained");
    }
    if (has_flag(role, LB_ROLE_SHADOW)) {
      notes.push_back(cat("average of ", roles[role.of].name));
    }
    if (has_flag(role, LB_ROLE_OPTIONAL)) {
      notes.emplace_back("optional");
    }
    items.push_back(notes.empty() ? role.name : cat(role.name, " (", join(notes), ")"));
  }
  return or_none(items);
}

// One component and what it needs.
struct User {
  const ComponentSpec& spec;
  const std::vector<lb_role> roles;
  const std::string name;  // method "x"
};

void report_missing(Draft& draft, const User& user, const lb_role& role) {
  const auto names = role_names(draft.manifest);
  const std::string guess = nearest(role.name, names);
  draft.diagnostics.error(
      user.spec.at,
      cat(user.name, " needs a role \"", role.name, "\", and there is no [models.", role.name,
          "]; it needs ", list_of(user.roles), "; the manifest has ", or_none(names)),
      guess.empty() ? cat("add [models.", role.name, "], or name the one that is meant: roles = { ",
                          role.name, " = \"...\" }")
                    : cat("is [models.", guess, "] meant? Rename it, or say roles = { ", role.name,
                          " = \"", guess, "\" }"));
}

// `roles = { theirs = "ours" }`: both sides must exist.
bool check_mapping(Draft& draft, const User& user) {
  const auto* roles = HostValues(draft.host[user.spec.key]).find("roles");
  if (roles == nullptr) {
    return true;
  }
  bool is_sound = true;
  std::vector<std::string> theirs;
  for (const auto& role : user.roles) {
    theirs.emplace_back(role.name);
  }
  const auto ours = role_names(draft.manifest);
  for (const auto& [name, value] : std::get<ConfigValue::Table>(roles->value)) {
    const std::string key = cat(user.spec.key, ".roles.", name);
    const auto& target = std::get<std::string>(value.value);
    if (std::find(theirs.begin(), theirs.end(), name) == theirs.end()) {
      draft.diagnostics.error(value.at, cat(key, ": ", user.name, " has no role \"", name, "\""),
                              cat("its roles: ", list_of(user.roles)));
      is_sound = false;
    }
    if (std::find(ours.begin(), ours.end(), target) == ours.end()) {
      draft.diagnostics.error(value.at, cat(key, ": there is no [models.", target, "]"),
                              cat("the manifest has ", or_none(ours)));
      is_sound = false;
    }
  }
  return is_sound;
}

std::vector<std::string> capabilities_of(const lb_role& role) {
  std::istringstream words(role.capabilities == nullptr ? "" : role.capabilities);
  std::vector<std::string> all;
  for (std::string word; words >> word;) {
    all.push_back(word);
  }
  return all;
}

std::vector<std::string> providers_of(const Draft& draft, const std::string& capability) {
  std::vector<std::string> names;
  for (const auto& component : draft.registry->components()) {
    if (component.provides(capability)) {
      names.push_back(component.name());
    }
  }
  return names;
}

void check_capabilities(Draft& draft,
                        const User& user,
                        const lb_role& needed,
                        const RoleSpec& role) {
  if (role.model.component == nullptr) {
    return;
  }
  for (const auto& capability : capabilities_of(needed)) {
    if (!role.model.component->provides(capability)) {
      const auto others = providers_of(draft, capability);
      draft.diagnostics.error(
          role.at,
          cat(role.model.key, ": ", describe(*role.model.component), " does not provide ",
              capability, ", which ", user.name, " needs of its role \"", needed.name, "\""),
          others.empty() ? "add a plugin with a network that does to \"plugins\""
                         : cat("loaded networks that do: ", join(others)));
    }
  }
}

// Two roles of one network cannot move apart: only roles that stay as they are can share one.
void check_sharing(Draft& draft, const User& user) {
  for (size_t i = 0; i < user.roles.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const std::string name = role_name(user.spec, user.roles[i].name);
      const bool is_moved = has_flag(user.roles[i], LB_ROLE_TRAINED | LB_ROLE_SHADOW) ||
                            has_flag(user.roles[j], LB_ROLE_TRAINED | LB_ROLE_SHADOW);
      if (is_moved && name == role_name(user.spec, user.roles[j].name)) {
        draft.diagnostics.error(
            user.spec.at,
            cat(user.name, ": its roles \"", user.roles[j].name, "\" and \"", user.roles[i].name,
                "\" are both filled by [models.", name, "], but one of them changes"),
            "give each a table of its own; they can have one init_from");
      }
    }
  }
}

// What all components together need.
struct Needs {
  std::set<std::string> roles;  // as the manifest calls them
  bool is_any_missing = false;
};

void check_needs(Draft& draft, const User& user, Needs& needs) {
  needs.is_any_missing |= !check_mapping(draft, user);
  check_sharing(draft, user);
  for (const auto& needed : user.roles) {
    const std::string name = role_name(user.spec, needed.name);
    const bool is_mapped = user.spec.roles.count(needed.name) > 0;
    needs.roles.insert(name);
    if (const RoleSpec* role = find_role(draft.manifest, name)) {
      check_capabilities(draft, user, needed, *role);
    } else if (!has_flag(needed, LB_ROLE_OPTIONAL) && !is_mapped) {
      report_missing(draft, user, needed);
      needs.is_any_missing = true;
    }
  }
}

// What the method says about roles becomes a property of the roles.
void mark_trained(Draft& draft, const User& method) {
  for (const auto& role : method.roles) {
    RoleSpec* spec = find_role(draft.manifest, role_name(method.spec, role.name));
    if (spec == nullptr) {
      continue;
    }
    spec->is_trained = spec->is_trained || has_flag(role, LB_ROLE_TRAINED);
    if (has_flag(role, LB_ROLE_SHADOW)) {
      spec->is_shadow = true;
      spec->shadow_of = role_name(method.spec, method.roles[role.of].name);
    }
  }
}

void check_trainable(Draft& draft, const User& method) {
  for (const auto& role : draft.manifest.roles) {
    const HostValues host(draft.host[role.model.key]);
    if (host.find("trainable") == nullptr || host.boolean("trainable") == role.is_trained) {
      continue;
    }
    const std::string key = role.model.key + ".trainable";
    if (role.is_trained) {
      draft.diagnostics.error(
          host.position("trainable"),
          cat(key, ": expected true, for ", method.name, " trains this role, got false"),
          "remove the key, or choose another method");
    } else {
      draft.diagnostics.error(
          host.position("trainable"),
          cat(key, ": expected false, for ", method.name, " does not train this role, got true"),
          cat("its roles: ", list_of(method.roles)));
    }
  }
}

// Components of the loaded plugins that have a role of this name and are not in the manifest.
std::vector<std::string> takers_of(const Draft& draft, const std::string& role) {
  std::set<const Component*> in_use;
  for (const ComponentSpec* spec : users(draft.manifest)) {
    in_use.insert(spec->component);
  }
  std::vector<std::string> names;
  for (const auto& component : draft.registry->components()) {
    if (in_use.count(&component) > 0) {
      continue;
    }
    for (const auto& needed : roles_of(component)) {
      if (needed.name == role) {
        names.push_back(component.name());
      }
    }
  }
  return names;
}

void check_unused(Draft& draft, const std::set<std::string>& used) {
  for (const auto& role : draft.manifest.roles) {
    if (used.count(role.name) > 0) {
      continue;
    }
    const auto takers = takers_of(draft, role.name);
    draft.diagnostics.error(
        role.at, cat(role.model.key, ": nothing uses this role"),
        takers.empty()
            ? cat("remove it, or name it where it is meant: roles = { ... = \"", role.name,
                  "\" }; names in use: ", or_none({used.begin(), used.end()}))
            : cat("remove it, or add what reads it; loaded components with a role of this name: ",
                  join(takers)));
  }
}

}  // namespace

void check_roles(Draft& draft) {
  Needs needs;
  for (const ComponentSpec* spec : users(draft.manifest)) {
    if (spec->component != nullptr) {
      check_needs(draft, {*spec, roles_of(*spec->component), describe(*spec->component)}, needs);
    }
  }
  const ComponentSpec& method = draft.manifest.method;
  if (method.component != nullptr) {
    const User user{method, roles_of(*method.component), describe(*method.component)};
    mark_trained(draft, user);
    check_trainable(draft, user);
  }
  // Where a role is missing, one that is left over is most likely the same fault.
  if (draft.has_all_components && !needs.is_any_missing) {
    check_unused(draft, needs.roles);
  }
}

}  // namespace limbeck
