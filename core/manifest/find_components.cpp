// SPDX-License-Identifier: Apache-2.0
// The stage that finds the component of every table that uses one.
#include <utility>

#include "core/base/text.hpp"
#include "core/manifest/component_table.hpp"
#include "core/manifest/strided.hpp"

namespace limbeck {
namespace {

// "limbeck.text-encoder/1" -> "text-encoder"
std::string word_of(std::string_view kind) {
  const size_t dot = kind.find('.');
  return std::string(kind.substr(dot + 1, kind.find('/') - dot - 1));
}

std::string noun_of(const ComponentTable& table) {
  if (table.kinds.size() > 1) {
    return "network";
  }
  const std::string_view kind = table.kinds.front();
  return kind == kPrepareKind ? "prepare hook" : kind == kDatasetKind ? "data set" : word_of(kind);
}

std::vector<const Component*> loaded(const Draft& draft, const ComponentTable& table) {
  std::vector<const Component*> found;
  for (const auto kind : table.kinds) {
    const auto more = draft.registry->of_kind(kind);
    found.insert(found.end(), more.begin(), more.end());
  }
  return found;
}

std::vector<std::string> names_of(const std::vector<const Component*>& components) {
  std::vector<std::string> names;
  for (const auto* component : components) {
    names.push_back(component->name());
  }
  return names;
}

std::string quoted_list(const std::vector<std::string>& names) {
  return "\"" + join(names, "\", \"") + "\"";
}

std::string hint_for_name(const std::string& name, const std::vector<std::string>& names) {
  const std::string guess = nearest(name, names);
  if (!guess.empty()) {
    return cat("did you mean \"", guess, "\"?");
  }
  const std::string advice = "add the plugin that offers it to \"plugins\"";
  return names.empty() ? advice : cat("loaded: ", quoted_list(names), "; or ", advice);
}

void report_unknown(Draft& draft, const ComponentTable& table) {
  const std::string noun = noun_of(table);
  draft.diagnostics.error(
      table.name_at,
      cat(table.key, ": no loaded plugin offers a ", noun, " named \"", table.name, "\""),
      hint_for_name(table.name, names_of(loaded(draft, table))));
}

const Component* find_named(Draft& draft, const ComponentTable& table) {
  std::vector<const Component*> found;
  for (const auto kind : table.kinds) {
    if (const auto* component = draft.registry->find(kind, table.name)) {
      found.push_back(component);
    }
  }
  if (found.size() == 1) {
    return found.front();
  }
  if (found.size() > 1) {
    draft.diagnostics.error(
        table.name_at, cat(table.key, ": several loaded plugins offer a network named \"",
                           table.name, "\": ", owner_of(*found[0]), ", ", owner_of(*found[1])));
  } else if (draft.has_all_components) {
    report_unknown(draft, table);
  }
  return nullptr;
}

// Without a name: right if there is only one that could be meant.
const Component* find_only(Draft& draft, const ComponentTable& table) {
  const auto candidates = loaded(draft, table);
  if (candidates.size() == 1) {
    return candidates.front();
  }
  const std::string noun = noun_of(table);
  if (candidates.size() > 1) {
    draft.diagnostics.error(table.at,
                            cat("missing key \"", table.key, ".type\": the name of a ", noun),
                            cat("loaded: ", quoted_list(names_of(candidates))));
  } else if (draft.has_all_components) {
    draft.diagnostics.error(table.at, cat(table.key, ": no loaded plugin offers a ", noun),
                            "add one that does to \"plugins\"");
  }
  return nullptr;
}

// Where each option of a component in use belongs.
void add_homes(Draft& draft, const ComponentTable& table, const Component* component) {
  if (component == nullptr) {
    return;
  }
  const bool is_network = table.kinds.size() > 1;
  for (const auto& option : read_options(component->table->options)) {
    draft.homes.push_back({option.name, is_network ? table.key + ".config" : table.key});
  }
}

}  // namespace

void find_components(Draft& draft) {
  bool has_all = draft.has_all_components;
  for (const auto& table : component_tables(draft)) {
    const Node* type = table.table->find("type");
    const bool is_type_wrong = type != nullptr && type->text() == nullptr && table.name.empty();
    const Component* component = is_type_wrong        ? nullptr
                                 : table.name.empty() ? find_only(draft, table)
                                                      : find_named(draft, table);
    draft.components[table.key] = component;
    add_homes(draft, table, component);
    has_all = has_all && component != nullptr;
  }
  draft.has_all_components = has_all;
}

}  // namespace limbeck
