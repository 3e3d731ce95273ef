// SPDX-License-Identifier: Apache-2.0
// The stage for settings that have two names (lb_option.alias). A value that is given under one
// name is copied to the other, with the place where the user wrote it.
#include <map>
#include <set>
#include <utility>

#include "core/base/text.hpp"
#include "core/manifest/component_table.hpp"
#include "core/manifest/option_table.hpp"
#include "core/manifest/strided.hpp"
#include "core/manifest/tables.hpp"

namespace limbeck {
namespace {

struct Alias {
  std::string key;     // of the option, for messages: "prepare[0].rate"
  std::string table;   // path of the table it is written in
  std::string option;  // its name there
  std::string target;  // the path it stands for
};

std::string parent_of(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

std::string last_of(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? path : path.substr(dot + 1);
}

Node* table_at(Node& root, const std::string& path) {
  return path.empty() ? &root : find_path(root, path);
}

const Member* given(Node& root, const std::string& table_path, const std::string& name) {
  const Node* table = table_at(root, table_path);
  return table == nullptr || table->find(name) == nullptr ? nullptr : &member_of(*table, name);
}

// A role is not made by an alias: that it is missing is for check_roles() to say.
bool is_of_missing_role(Node& root, const std::string& path) {
  const auto names = split_path(path);
  return names.size() > 1 && names[0] == "models" &&
         find_path(root, "models." + names[1]) == nullptr;
}

// Copies `from` to `path`, whose tables are made as needed.
void write_to(Draft& draft, const std::string& path, const Member& from) {
  if (is_of_missing_role(draft.root, path)) {
    return;
  }
  std::string blocked;
  Node* table = make_path(draft.root, parent_of(path), from.key_at, blocked);
  if (table != nullptr && table->table() != nullptr) {
    set_member(*table, {last_of(path), from.key_at, from.node});
  }
}

void unite(Draft& draft, const Alias& alias) {
  const Member* here = given(draft.root, alias.table, alias.option);
  const Member* there = given(draft.root, parent_of(alias.target), last_of(alias.target));
  if (here != nullptr && there == nullptr) {
    write_to(draft, alias.target, Member(*here));
  } else if (here == nullptr && there != nullptr) {
    write_to(draft, join_key(alias.table, alias.option), Member(*there));
  } else if (here != nullptr && !is_same_value(here->node, there->node)) {
    draft.diagnostics.error(here->node.at,
                            cat("\"", alias.key, "\" and \"", alias.target,
                                "\" are two names of one setting and have different values: ",
                                describe(here->node), " and ", describe(there->node)),
                            "keep one of them");
  }
}

// Names that the host knows from other trainers: only their target is kept.
void move_host_aliases(Draft& draft) {
  const std::pair<const char*, std::vector<lb_option>> tables[] = {
      {"training.data", data_options()},
      {"training.checkpoint", checkpoint_options()},
      {"training.tracker", tracker_options()},
  };
  for (const auto& [path, options] : tables) {
    for (const auto& option : options) {
      if (option.alias != nullptr && given(draft.root, path, option.name) != nullptr) {
        unite(draft, {join_key(path, option.name), path, option.name, option.alias});
        remove_member(*find_path(draft.root, path), option.name);
      }
    }
  }
}

// "models.a.x" names a role as the component does; the manifest may call it "b".
std::string translate_role(const std::string& target, const Node& table) {
  auto names = split_path(target);
  if (names.size() > 1 && names[0] == "models") {
    const Node* mapped = inner_table(table, "roles").find(names[1]);
    if (mapped != nullptr && mapped->text() != nullptr) {
      names[1] = *mapped->text();
    }
  }
  return join(names, ".");
}

// The data set may have an option of its own under the name.
bool is_own_option(Draft& draft, const std::string& path) {
  const Component* component = draft.components[parent_of(path)];
  return component != nullptr &&
         find_option(read_options(component->table->options), last_of(path)) != nullptr;
}

bool is_forwarded_given(Draft& draft, const std::string& path) {
  return find_path(draft.root, path) != nullptr && !is_own_option(draft, path);
}

// After components took them: a forwarded key that nobody took has no effect.
void finish_forwarded(Draft& draft, const std::set<std::string>& taken) {
  const std::pair<const char*, std::vector<lb_option>> tables[] = {
      {"training.data", data_options()},
      {"training.model", training_model_options()},
  };
  for (const auto& [path, options] : tables) {
    for (const auto& option : options) {
      const std::string key = join_key(path, option.name);
      if ((option.flags & kForwarded) == 0 || !is_forwarded_given(draft, key)) {
        continue;
      }
      if (taken.count(key) == 0 && draft.has_all_components) {
        draft.diagnostics.error(given(draft.root, path, option.name)->key_at,
                                cat("\"", key, "\" has no effect: nothing in use takes it"),
                                summary(option));
      }
      remove_member(*find_path(draft.root, path), option.name);
    }
  }
}

std::vector<Alias> component_aliases(Draft& draft) {
  std::vector<Alias> aliases;
  std::map<std::string, std::string> owners;  // by target
  for (const auto& table : component_tables(draft)) {
    const Component* component = draft.components[table.key];
    if (component == nullptr) {
      continue;
    }
    for (const auto& option : read_options(component->table->options)) {
      if (option.name == nullptr || option.alias == nullptr) {
        continue;
      }
      const std::string target = translate_role(option.alias, *table.table);
      const std::string name = join_key(table.key, option.name);
      // Nobody is in the way of anybody until the key is there.
      if (is_forwarded(target) && !is_forwarded_given(draft, target)) {
        continue;
      }
      const auto [owner, is_new] = owners.emplace(target, name);
      if (is_new) {
        aliases.push_back({name, table.path, option.name, target});
      } else {
        draft.diagnostics.error(table.at,
                                cat("\"", name, "\" and \"", owner->second,
                                    "\" are both another name of \"", target, "\""),
                                is_forwarded(target)
                                    ? "set it in each of them instead"
                                    : "these two components cannot be used together");
      }
    }
  }
  return aliases;
}

}  // namespace

void apply_aliases(Draft& draft) {
  move_host_aliases(draft);
  // Collected first: writing moves the tables that component_tables() points to.
  std::set<std::string> taken;
  for (const auto& alias : component_aliases(draft)) {
    unite(draft, alias);
    taken.insert(alias.target);
  }
  finish_forwarded(draft, taken);
}

}  // namespace limbeck
