// SPDX-License-Identifier: Apache-2.0
// The end of loading: numbers for plugins, and the manifest with every default filled in.
#include <utility>

#include "core/base/text.hpp"
#include "core/manifest/component_table.hpp"
#include "core/manifest/host_values.hpp"
#include "core/manifest/option_table.hpp"
#include "core/manifest/strided.hpp"
#include "core/manifest/tables.hpp"
#include "core/manifest/toml.hpp"

namespace limbeck {
namespace {

constexpr const char* kHidden = "***";

void add_facts(const std::string& prefix,
               const ConfigValue::Table& table,
               std::map<std::string, double>& facts) {
  for (const auto& [name, value] : table) {
    const std::string key = join_key(prefix, name);
    if (const auto* boolean = std::get_if<bool>(&value.value)) {
      facts[key] = *boolean ? 1.0 : 0.0;
    } else if (const auto* integer = std::get_if<int64_t>(&value.value)) {
      facts[key] = static_cast<double>(*integer);
    } else if (const auto* number = std::get_if<double>(&value.value)) {
      facts[key] = *number;
    }
  }
}

// ---- checked values as nodes ----

Node to_node(const ConfigValue& value);

Node table_node(const ConfigValue::Table& table) {
  Node::Table members;
  for (const auto& [name, value] : table) {
    members.push_back({name, {}, to_node(value)});
  }
  return {std::move(members), {}};
}

struct ToNode {
  template <class Scalar>
  Node operator()(const Scalar& scalar) const {
    return {scalar, {}};
  }
  Node operator()(const ConfigValue::List& list) const {
    Node::List items;
    for (const auto& item : list) {
      items.push_back(to_node(item));
    }
    return {std::move(items), {}};
  }
  Node operator()(const ConfigValue::Table& table) const { return table_node(table); }
};

Node to_node(const ConfigValue& value) {
  Node node = std::visit(ToNode{}, value.value);
  node.at = value.is_given ? value.at : Position{};
  return node;
}

// For values that no key gives but somebody decided: said instead of a place.
Position decided_by(const char* whom) { return {whom, 0, 0}; }

void put(Node& table, const std::string& name, Node node) {
  set_member(table, {name, {}, std::move(node)});
}

template <class T>
void put_value(Node& table, const std::string& name, T value, Position at = {}) {
  put(table, name, Node{std::move(value), std::move(at)});
}

Node empty_table() { return {Node::Table{}, {}}; }

// Another name of a key, which is written in its own place, or one that would warn.
bool is_written_when_given(const lb_option& option) {
  const bool has_other_place = option.alias != nullptr && !is_forwarded(option.alias);
  return has_other_place || (option.flags & LB_OPT_DEPRECATED) != 0;
}

// The options of a component. A secret keeps its name only.
Node config_node(const ConfigValue::Table& table, const std::vector<lb_option>& options) {
  Node node = empty_table();
  for (const auto& [name, value] : table) {
    const lb_option* option = find_option(options, name);
    const bool is_secret = option != nullptr && (option->flags & LB_OPT_SECRET) != 0;
    const auto* inner = std::get_if<ConfigValue::Table>(&value.value);
    if (option != nullptr && is_written_when_given(*option) && !value.is_given) {
      continue;
    }
    if (is_secret) {
      put_value(node, name, std::string(kHidden), decided_by("a secret, which is not written"));
    } else if (inner != nullptr && option != nullptr && (option->flags & LB_OPT_OPEN) == 0) {
      put(node, name, config_node(*inner, read_options(option->fields)));
    } else {
      put(node, name, to_node(value));
    }
  }
  return node;
}

std::vector<lb_option> options_of(const Component& component) {
  return read_options(component.table->options);
}

// Where a component in use was named; nowhere, if it is the only one there is.
Position type_place(const Draft& draft, const std::string& key) {
  const auto* type = find_value(draft.host.at(key), "type");
  return type != nullptr && type->is_given ? type->at : Position{};
}

// `type`, the host's keys, then the options.
Node component_node(const Draft& draft, const ComponentSpec& spec) {
  Node node = empty_table();
  put_value(node, "type", spec.component->name(), type_place(draft, spec.key));
  for (const auto& [name, value] : draft.host.at(spec.key)) {
    const bool is_empty = name == "roles" && spec.roles.empty();
    if (name != "type" && !is_empty) {
      put(node, name, to_node(value));
    }
  }
  const Node options = config_node(spec.config->table, options_of(*spec.component));
  for (const auto& member : *options.table()) {
    put(node, member.key, member.node);
  }
  return node;
}

// ---- tables ----

Node plugins_node(const Draft& draft) {
  Node::List items;
  for (const auto& plugin : draft.plugins) {
    if (plugin.sha256.empty()) {
      items.push_back({plugin.name, {}});
    } else {
      Node entry = empty_table();
      put_value(entry, "path", plugin.name);
      put_value(entry, "sha256", plugin.sha256);
      items.push_back(std::move(entry));
    }
  }
  const Node* plugins = draft.root.find("plugins");
  return {std::move(items), plugins == nullptr ? Position{} : plugins->at};
}

// The members in the order of `options`, so that a resolved manifest resolves to itself.
Node in_order(const Node& table, const std::vector<lb_option>& options) {
  Node node = empty_table();
  for (const auto& option : options) {
    if (const Node* value = table.find(option.name)) {
      put(node, option.name, *value);
    }
  }
  return node;
}

Node run_node(const Draft& draft) {
  const HostValues given(draft.host.at("run"));
  const auto place = [&given](const char* key) {
    return given.find(key) == nullptr ? Position{} : given.position(key);
  };
  Node node = table_node(draft.host.at("run"));
  put_value(node, "name", draft.manifest.run.name, place("name"));
  put_value(node, "output_dir", draft.manifest.run.output_dir.string(),
            draft.has_output_override ? decided_by("--override-output-dir") : place("output_dir"));
  return in_order(node, run_options());
}

Node role_node(const Draft& draft, const RoleSpec& role) {
  constexpr const char* kRecompute = "enable_gradient_checkpointing_type";
  const HostValues host(draft.host.at(role.model.key));
  const HostValues shared(draft.host.at("training.model"));
  Node values = table_node(draft.host.at(role.model.key));
  put_value(values, "type", role.model.component->name(), type_place(draft, role.model.key));
  if (host.find("trainable") == nullptr) {
    put_value(values, "trainable", role.is_trained, decided_by("as the method says"));
  }
  if (host.find(kRecompute) == nullptr) {
    put(values, kRecompute, to_node(*shared.find(kRecompute)));
  }
  put(values, "config", config_node(role.model.config->table, options_of(*role.model.component)));
  for (const char* name : {"optimizer", "ema", "lora"}) {
    const auto settled = draft.settled.find(join_key(role.model.key, name));
    if (role.is_trained && settled != draft.settled.end()) {
      put(values, name, table_node(settled->second));
    }
  }
  return in_order(values, role_options());
}

Node roles_node(const Draft& draft) {
  Node node = empty_table();
  for (const auto& role : draft.manifest.roles) {
    put(node, role.name, role_node(draft, role));
  }
  return node;
}

Node list_node(const Draft& draft, const std::vector<const ComponentSpec*>& specs) {
  Node::List items;
  for (const auto* spec : specs) {
    items.push_back(component_node(draft, *spec));
  }
  return {std::move(items), {}};
}

Node tracker_node(const Draft& draft) {
  Node node = table_node(draft.host.at("training.tracker"));
  for (const auto& tracker : draft.manifest.trackers) {
    Node options = config_node(tracker.config->table, options_of(*tracker.component));
    put(node, tracker.component->name(), std::move(options));
  }
  return node;
}

Node training_node(const Draft& draft) {
  Node node = empty_table();
  if (draft.manifest.data) {
    put(node, "data", component_node(draft, draft.manifest.data->dataset));
  }
  for (const char* name :
       {"optimizer", "loop", "distributed", "checkpoint", "model", "performance"}) {
    put(node, name, table_node(draft.host.at(join_key("training", name))));
  }
  put(node, "tracker", tracker_node(draft));
  return node;
}

// Averages are written with their roles, so [callbacks.ema] is not.
Node callbacks_node(const Draft& draft) {
  Node node = empty_table();
  put(node, "grad_clip", table_node(draft.host.at("callbacks.grad_clip")));
  for (const auto& callback : draft.manifest.callbacks) {
    put(node, callback.name, component_node(draft, callback.component));
  }
  return node;
}

void add_secrets(const std::string& table,
                 const std::vector<lb_option>& options,
                 std::vector<std::string>& keys) {
  for (const auto& option : options) {
    const std::string key = join_key(table, option.name);
    if ((option.flags & LB_OPT_SECRET) != 0) {
      keys.push_back(key);
    } else if (option.type == LB_TABLE && (option.flags & LB_OPT_OPEN) == 0) {
      add_secrets(key, read_options(option.fields), keys);
    }
  }
}

}  // namespace

void collect_secrets(Draft& draft) {
  Manifest& manifest = draft.manifest;
  std::vector<const ComponentSpec*> specs = {&manifest.method};
  for (const auto& role : manifest.roles) {
    specs.push_back(&role.model);
  }
  for (const auto& spec : manifest.prepare) {
    specs.push_back(&spec);
  }
  for (const auto& loss : manifest.losses) {
    specs.push_back(&loss.component);
  }
  for (const auto& callback : manifest.callbacks) {
    specs.push_back(&callback.component);
  }
  for (const auto& tracker : manifest.trackers) {
    specs.push_back(&tracker);
  }
  if (manifest.data) {
    specs.push_back(&manifest.data->dataset);
  }
  for (const auto* spec : specs) {
    add_secrets(spec->config->key, options_of(*spec->component), manifest.secret_keys);
  }
}

void collect_facts(Draft& draft) {
  Manifest& manifest = draft.manifest;
  add_facts("pipeline", draft.host.at("pipeline"), manifest.facts);
  add_facts("loop", draft.host.at("training.loop"), manifest.facts);
  if (manifest.data) {
    add_facts("data", draft.host.at("training.data"), manifest.facts);
    add_facts("data", manifest.data->dataset.config->table, manifest.facts);
  }
}

Node resolve(const Draft& draft) {
  const Manifest& manifest = draft.manifest;
  std::vector<const ComponentSpec*> prepare;
  for (const auto& spec : manifest.prepare) {
    prepare.push_back(&spec);
  }
  std::vector<const ComponentSpec*> losses;
  for (const auto& loss : manifest.losses) {
    losses.push_back(&loss.component);
  }
  Node root = empty_table();
  put(root, "plugins", plugins_node(draft));
  put(root, "run", run_node(draft));
  put(root, "models", roles_node(draft));
  put(root, "method", component_node(draft, manifest.method));
  put(root, "prepare", list_node(draft, prepare));
  put(root, "losses", list_node(draft, losses));
  put(root, "training", training_node(draft));
  put(root, "callbacks", callbacks_node(draft));
  put(root, "pipeline", table_node(draft.host.at("pipeline")));
  return root;
}

}  // namespace limbeck
