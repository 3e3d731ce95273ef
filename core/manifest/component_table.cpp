// SPDX-License-Identifier: Apache-2.0
#include "core/manifest/component_table.hpp"

#include <algorithm>
#include <utility>

#include "core/base/text.hpp"
#include "core/manifest/option_table.hpp"
#include "core/manifest/strided.hpp"

namespace limbeck {
namespace {

std::vector<std::string_view> network_kinds() {
  return {kModelKind, kVaeKind, kTextEncoderKind, kRewardKind};
}

// The name a table gives its component, and where.
void read_type(ComponentTable& place) {
  const Node* type = place.table->find("type");
  if (type != nullptr && type->text() != nullptr) {
    place.name = *type->text();
    place.name_at = type->at;
  } else {
    place.name_at = place.at;
  }
}

ComponentTable place_of(std::string key,
                        std::string path,
                        const Node& table,
                        std::vector<std::string_view> kinds) {
  ComponentTable place{std::move(key), std::move(path), &table, table.at, std::move(kinds), "", {}};
  read_type(place);
  return place;
}

void add_roles(const Node& root, std::vector<ComponentTable>& out) {
  for (const auto& member : *inner_table(root, "models").table()) {
    if (member.node.table() != nullptr) {
      const std::string key = join_key("models", member.key);
      out.push_back(place_of(key, key, member.node, network_kinds()));
    }
  }
}

void add_list(const Node& root,
              const char* name,
              std::string_view kind,
              std::vector<ComponentTable>& out) {
  const Node* node = root.find(name);
  const auto* list = node == nullptr ? nullptr : node->list();
  for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
    if ((*list)[i].table() != nullptr) {
      out.push_back(place_of(cat(name, "[", i, "]"), cat(name, ".", i), (*list)[i], {kind}));
    }
  }
}

void add_data(const Node& root, std::vector<ComponentTable>& out) {
  const Node* data = inner_table(root, "training").find("data");
  if (data != nullptr && data->table() != nullptr) {
    out.push_back(place_of("training.data", "training.data", *data, {kDatasetKind}));
  }
}

void add_callbacks(const Node& root, std::vector<ComponentTable>& out) {
  for (const auto& member : *inner_table(root, "callbacks").table()) {
    const bool is_own = member.key == "grad_clip" || member.key == "ema";
    if (is_own || member.node.table() == nullptr) {
      continue;
    }
    const std::string key = join_key("callbacks", member.key);
    out.push_back(place_of(key, key, member.node, {kCallbackKind}));
    if (member.node.find("type") == nullptr) {
      out.back().name = member.key;
    }
  }
}

void add_trackers(const Node& root, std::vector<ComponentTable>& out) {
  const Node& tracker = inner_table(inner_table(root, "training"), "tracker");
  const Node* names = tracker.find("trackers");
  if (names == nullptr || names->list() == nullptr) {
    return;
  }
  for (const auto& item : *names->list()) {
    if (const std::string* name = item.text()) {
      const std::string key = "training.tracker." + *name;
      out.push_back(
          {key, key, &inner_table(tracker, *name), item.at, {kTrackerKind}, *name, item.at});
    }
  }
}

std::map<std::string, std::string> read_role_names(const ConfigValue::Table& host) {
  std::map<std::string, std::string> names;
  const auto* roles = find_value(host, "roles");
  if (roles != nullptr) {
    for (const auto& [name, value] : std::get<ConfigValue::Table>(roles->value)) {
      names[name] = std::get<std::string>(value.value);
    }
  }
  return names;
}

}  // namespace

std::vector<ComponentTable> component_tables(const Draft& draft) {
  std::vector<ComponentTable> out;
  add_roles(draft.root, out);
  out.push_back(place_of("method", "method", inner_table(draft.root, "method"), {kMethodKind}));
  add_list(draft.root, "prepare", kPrepareKind, out);
  add_list(draft.root, "losses", kLossKind, out);
  add_data(draft.root, out);
  add_callbacks(draft.root, out);
  add_trackers(draft.root, out);
  return out;
}

const Node& inner_table(const Node& table, std::string_view name) {
  static const Node& empty = *new Node{Node::Table{}, {}};
  const Node* inner = table.find(name);
  return inner != nullptr && inner->table() != nullptr ? *inner : empty;
}

ComponentSpec read_component(Draft& draft,
                             const ComponentTable& table,
                             std::vector<lb_option> host) {
  ComponentSpec spec;
  spec.key = table.key;
  spec.at = table.at;
  spec.component = draft.components[table.key];
  auto config = std::make_shared<lb_config>();
  config->key = table.key;
  if (spec.component == nullptr) {
    // It might have declared a name that the host only keeps for a feature to come.
    std::erase_if(host, [](const lb_option& option) { return (option.flags & kUnavailable) != 0; });
  } else {
    const auto own = read_options(spec.component->table->options);
    // Only names that the host leaves to it: taken_names() are refused on loading.
    std::erase_if(
        host, [&own](const lb_option& option) { return find_option(own, option.name) != nullptr; });
    auto known = host;
    known.insert(known.end(), own.begin(), own.end());
    check_keys(*table.table, known, table.key, draft.scope());
    config->table = check_values(*table.table, own, table.key, draft.scope());
  }
  draft.host[table.key] = check_values(*table.table, host, table.key, draft.scope());
  spec.roles = read_role_names(draft.host[table.key]);
  spec.config = std::move(config);
  return spec;
}

std::string owner_of(const Component& component) {
  return cat("component \"", component.name(), "\" of plugin \"", component.library->name, "\"");
}

std::string describe(const Component& component) {
  const std::string kind = component.kind();
  const char* noun = kind == kMethodKind     ? "method"
                     : kind == kPrepareKind  ? "prepare hook"
                     : kind == kLossKind     ? "loss"
                     : kind == kCallbackKind ? "callback"
                     : kind == kDatasetKind  ? "data set"
                     : kind == kTrackerKind  ? "tracker"
                                             : "network";
  return cat(noun, " \"", component.name(), "\"");
}

std::vector<lb_role> roles_of(const Component& component) {
  const std::string kind = component.kind();
  if (kind == kMethodKind) {
    return read_roles(component.vtable<lb_method_vtable>().roles);
  }
  if (kind == kPrepareKind) {
    return read_roles(component.vtable<lb_prepare_vtable>().needs);
  }
  if (kind == kLossKind) {
    return read_roles(component.vtable<lb_loss_vtable>().needs);
  }
  if (kind == kCallbackKind) {
    return read_roles(component.vtable<lb_callback_vtable>().needs);
  }
  return {};
}

std::string role_name(const ComponentSpec& spec, const std::string& name) {
  const auto found = spec.roles.find(name);
  return found == spec.roles.end() ? name : found->second;
}

}  // namespace limbeck
