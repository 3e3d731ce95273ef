// SPDX-License-Identifier: Apache-2.0
#include "core/manifest/document.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/base/text.hpp"
#include "core/manifest/component_table.hpp"
#include "core/manifest/option_table.hpp"
#include "core/manifest/strided.hpp"
#include "core/manifest/tables.hpp"
#include "core/manifest/toml.hpp"

namespace limbeck {
namespace {

using Json = nlohmann::ordered_json;

// ---- What there is

struct Section {
  const char* title;
  const char* text;
  std::vector<lb_option> options;
};

// The fields of a table among the options of a host's table.
std::vector<lb_option> fields_of(const std::vector<lb_option>& options, const char* name) {
  const lb_option* table = find_option(options, name);
  return table == nullptr ? std::vector<lb_option>() : read_options(table->fields);
}

std::vector<Section> sections() {
  return {
      {"The top level", "", top_options()},
      {"[run]", "", run_options()},
      {"[models.&lt;role&gt;]",
       "One table for each network of a run; the method and the callbacks say which roles they "
       "need. `config` has the options of the network, over those of the config.json in "
       "`init_from`.",
       role_options()},
      {"[models.&lt;role&gt;.optimizer]",
       "The keys of `[training.optimizer]`, for this role alone. Of trained roles.",
       {}},
      {"[models.&lt;role&gt;.ema]", "Of trained roles.", ema_options()},
      {"[models.&lt;role&gt;.lora]", "Of trained roles.", lora_options()},
      {"[method]", "Beside these, the options of the method.", method_options()},
      {"[[prepare]]", "Beside these, the options of the hook.", prepare_options()},
      {"[[losses]]", "Beside these, the options of the loss.", loss_options()},
      {"[training]", "", training_options()},
      {"[training.data]", "Beside these, the options of the data set.", data_options()},
      {"[training.optimizer]", "Of every trained role.", optimizer_options()},
      {"[training.loop]", "", loop_options()},
      {"[training.distributed]", "", distributed_options()},
      {"[training.checkpoint]", "", checkpoint_options()},
      {"[training.tracker]", "Each tracker has a table in it, with the tracker's options.",
       tracker_options()},
      {"[training.model]", "", training_model_options()},
      {"[training.performance]", "", performance_options()},
      {"[training.vsa]", "", fields_of(training_options(), "vsa")},
      {"[callbacks.grad_clip]", "", grad_clip_options()},
      {"[callbacks.ema]", "Another door to `[models.<role>.ema]`, for all trained roles.",
       ema_callback_options()},
      {"[callbacks.&lt;name&gt;]",
       "Beside these, the options of the callback. Without `type`, the name of the table is it.",
       callback_options()},
      {"[pipeline]", "", pipeline_options()},
  };
}

struct Kind {
  const char* kind;
  const char* title;
};
constexpr Kind kKinds[] = {
    {kMethodKind, "Methods"},
    {kPrepareKind, "Prepare hooks"},
    {kLossKind, "Losses"},
    {kModelKind, "Networks"},
    {kVaeKind, "Networks: VAEs"},
    {kTextEncoderKind, "Networks: text encoders"},
    {kRewardKind, "Networks: rewards"},
    {kDatasetKind, "Data sets"},
    {kCallbackKind, "Callbacks"},
    {kTrackerKind, "Trackers"},
};

std::vector<const Component*> sorted(const Registry& registry, std::string_view kind) {
  auto found = registry.of_kind(kind);
  std::sort(found.begin(), found.end(), [](const Component* a, const Component* b) {
    return std::pair(a->name(), a->library->name) < std::pair(b->name(), b->library->name);
  });
  return found;
}

std::vector<lb_option> options_of(const Component& component) {
  return read_options(component.table->options);
}

// ---- Markdown

std::string one_line(std::string text) {
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos;) {
    size_t end = at;
    while (end < text.size() && text[end] == '\n') {
      ++end;
    }
    text.replace(at, end - at, " ");
  }
  return text;
}

// Text in a cell of a table.
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : one_line(text)) {
    out += c == '|' ? "\\|" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  }
  return out;
}

std::string code(const std::string& text) { return text.empty() ? "" : "`" + text + "`"; }

std::string type_cell(const lb_option& option) {
  const bool is_free = option.alias != nullptr && option.fallback == nullptr;
  if (is_free || (option.flags & kForwarded) != 0) {
    return "";
  }
  const bool is_tables = option.type == LB_TABLE && (option.flags & LB_OPT_LIST) != 0;
  return is_tables ? "tables" : cell(expectation(option));
}

std::string default_cell(const lb_option& option) {
  if (option.fallback != nullptr) {
    return cell(code(option.fallback));
  }
  const bool may_be_absent = (option.flags & (kOptional | kElsewhere)) != 0;
  return may_be_absent ? "" : "required";
}

std::string meaning_cell(const lb_option& option) {
  std::string text = option.doc == nullptr ? "" : cell(option.doc);
  const auto add = [&text](const std::string& more) { text += (text.empty() ? "" : " ") + more; };
  if (option.alias != nullptr) {
    add(cat(text.empty() ? "Another name of `" : "Also called `", option.alias, "`."));
  }
  if ((option.flags & kFixed) != 0) {
    add("Other values are not available in this version.");
  }
  if ((option.flags & LB_OPT_DEPRECATED) != 0) {
    add("Deprecated.");
  }
  if ((option.flags & LB_OPT_SECRET) != 0) {
    add("A secret: it is not written into results.");
  }
  return text;
}

void add_rows(const std::vector<lb_option>& options, const std::string& prefix, std::string& out) {
  for (const auto& option : options) {
    if ((option.flags & kUnavailable) != 0) {
      continue;
    }
    const std::string name = prefix + option.name;
    const bool has_fields = option.type == LB_TABLE && option.fields.count > 0 &&
                            (option.flags & (LB_OPT_OPEN | kElsewhere)) == 0;
    if (has_fields) {
      add_rows(read_options(option.fields), name + ".", out);
    } else {
      out += cat("| `", name, "` | ", type_cell(option), " | ", default_cell(option), " | ",
                 meaning_cell(option), " |\n");
    }
  }
}

std::string unavailable_text(const std::vector<lb_option>& options) {
  std::vector<std::string> names;
  for (const auto& option : options) {
    if ((option.flags & kUnavailable) != 0) {
      const std::string hint = summary(option);
      names.push_back(cat("`", option.name, "`", hint.empty() ? "" : " (" + cell(hint) + ")"));
    }
  }
  return names.empty() ? ""
                       : cat("\nKnown, and not available in this version: ", join(names), ".\n");
}

std::string options_text(const std::vector<lb_option>& options) {
  std::string rows;
  add_rows(options, "", rows);
  const std::string head = "| key | value | default | meaning |\n|---|---|---|---|\n";
  return (rows.empty() ? "" : head + rows) + unavailable_text(options);
}

std::string component_text(const Component& component) {
  const std::string doc = component.table->doc == nullptr ? "" : component.table->doc;
  const std::string options = options_text(options_of(component));
  return cat("\n### `", component.name(), "`\n\n", doc, doc.ends_with('\n') ? "" : "\n",
             "\nOf plugin `", component.library->name, "`.\n", options.empty() ? "" : "\n",
             options);
}

// ---- JSON Schema

Json to_json(const Node& node) {
  struct Convert {
    Json operator()(bool value) const { return value; }
    Json operator()(int64_t value) const { return value; }
    Json operator()(double value) const { return value; }
    Json operator()(const std::string& value) const { return value; }
    Json operator()(const Node::List& value) const {
      auto list = Json::array();
      for (const auto& item : value) {
        list.push_back(to_json(item));
      }
      return list;
    }
    Json operator()(const Node::Table& value) const {
      auto object = Json::object();
      for (const auto& member : value) {
        object[member.key] = to_json(member.node);
      }
      return object;
    }
    Json operator()(Node::Moment) const { return nullptr; }
  };
  return std::visit(Convert{}, node.value);
}

Json object_of(const std::vector<lb_option>& options);

void add_range(const lb_option& option, Json& schema) {
  const auto range = option.range == nullptr ? std::nullopt : parse_range(option.range);
  if (!range) {
    return;
  }
  const auto bound = [&](const char* name, double value) {
    if (std::isinf(value)) {
      return;
    }
    const bool is_whole = option.type == LB_INT;
    schema[name] = is_whole ? Json(static_cast<int64_t>(value)) : Json(value);
  };
  bound(range->is_low_open ? "exclusiveMinimum" : "minimum", range->low);
  bound(range->is_high_open ? "exclusiveMaximum" : "maximum", range->high);
}

Json schema_of_item(const lb_option& option) {
  Json schema;
  switch (option.type) {
    case LB_BOOL:
      schema["type"] = "boolean";
      break;
    case LB_INT:
      schema["type"] = "integer";
      break;
    case LB_FLOAT:
      schema["type"] = "number";
      break;
    case LB_ENUM:
      schema["enum"] = choices_of(option);
      break;
    case LB_TABLE:
      schema =
          (option.flags & LB_OPT_OPEN) == 0
              ? object_of(read_options(option.fields))
              : Json{{"type", "object"},
                     {"additionalProperties", schema_of_item(read_options(option.fields).front())}};
      break;
    default:
      schema["type"] = "string";
  }
  add_range(option, schema);
  return schema;
}

Json schema_of(const lb_option& option) {
  const std::string doc = option.doc == nullptr ? "" : one_line(option.doc);
  if ((option.flags & kUnavailable) != 0) {
    return {{"not", Json::object()},
            {"description", cat("Not available in this version", doc.empty() ? "." : ": " + doc)}};
  }
  const bool is_free = option.alias != nullptr && option.fallback == nullptr;
  if (is_free || (option.flags & kForwarded) != 0) {
    return {
        {"description", is_free && doc.empty() ? cat("Another name of ", option.alias, ".") : doc}};
  }
  Json schema = schema_of_item(option);
  if ((option.flags & LB_OPT_LIST) != 0) {
    schema = {{"type", "array"}, {"items", schema}};
  }
  if (!doc.empty()) {
    schema["description"] = doc;
  }
  if (option.fallback != nullptr) {
    const Json value = to_json(parse_value(option.fallback, {}));
    schema[(option.flags & kFixed) != 0 ? "const" : "default"] = value;
  }
  if ((option.flags & LB_OPT_DEPRECATED) != 0) {
    schema["deprecated"] = true;
  }
  return schema;
}

Json object_of(const std::vector<lb_option>& options) {
  Json schema = {{"type", "object"}, {"properties", Json::object()}};
  auto required = Json::array();
  for (const auto& option : options) {
    schema["properties"][option.name] = schema_of(option);
    const bool may_be_absent = option.fallback != nullptr || option.alias != nullptr ||
                               (option.flags & (kOptional | kUnavailable | kElsewhere)) != 0;
    if (!may_be_absent) {
      required.push_back(option.name);
    }
  }
  if (!required.empty()) {
    schema["required"] = required;
  }
  schema["additionalProperties"] = false;
  return schema;
}

// The host's keys and the component's own, which takes the place of one of the same name.
Json object_with(std::vector<lb_option> host, const Component& component) {
  const auto own = options_of(component);
  std::erase_if(
      host, [&own](const lb_option& option) { return find_option(own, option.name) != nullptr; });
  host.insert(host.end(), own.begin(), own.end());
  return object_of(host);
}

Json role_with(const Component& component) {
  auto schema = object_of(role_options());
  // What is required may be in the config.json beside the weights.
  schema["properties"]["config"] = object_of(all_optional(options_of(component)));
  schema["properties"]["optimizer"] = object_of(all_optional(optimizer_options()));
  schema["properties"]["ema"] = object_of(ema_options());
  schema["properties"]["lora"] = object_of(lora_options());
  return schema;
}

// One schema for each `type`; another type is left open.
template <class Make>
Json by_type(const std::vector<const Component*>& components, const Make& make) {
  auto choices = Json::array();
  for (const auto* component : components) {
    const Json is_type = {{"properties", {{"type", {{"const", component->name()}}}}},
                          {"required", {"type"}}};
    choices.push_back({{"if", is_type}, {"then", make(*component)}});
  }
  Json schema = {{"type", "object"}, {"properties", {{"type", {{"type", "string"}}}}}};
  if (!choices.empty()) {
    schema["allOf"] = choices;
  }
  return schema;
}

Json callbacks_schema(const Registry& registry) {
  const auto callbacks = sorted(registry, kCallbackKind);
  const auto make = [](const Component& component) {
    return object_with(callback_options(), component);
  };
  Json properties = {{"grad_clip", object_of(grad_clip_options())},
                     {"ema", object_of(ema_callback_options())}};
  for (const auto* callback : callbacks) {
    // Without a type, the table's name is it.
    const Json has_type = {{"required", {"type"}}};
    properties[callback->name()] = {
        {"if", has_type}, {"then", by_type(callbacks, make)}, {"else", make(*callback)}};
  }
  return {{"type", "object"},
          {"properties", properties},
          {"additionalProperties", by_type(callbacks, make)}};
}

Json trackers_schema(const Registry& registry) {
  auto schema = object_of(tracker_options());
  for (const auto* tracker : sorted(registry, kTrackerKind)) {
    schema["properties"][tracker->name()] = object_of(options_of(*tracker));
  }
  schema["additionalProperties"] = Json{{"type", "object"}};
  return schema;
}

Json training_schema(const Registry& registry) {
  auto schema = object_of(training_options());
  auto& tables = schema["properties"];
  tables["data"] = by_type(sorted(registry, kDatasetKind), [](const Component& component) {
    return object_with(data_options(), component);
  });
  tables["optimizer"] = object_of(optimizer_options());
  tables["loop"] = object_of(loop_options());
  tables["distributed"] = object_of(distributed_options());
  tables["checkpoint"] = object_of(checkpoint_options());
  tables["tracker"] = trackers_schema(registry);
  tables["model"] = object_of(training_model_options());
  tables["performance"] = object_of(performance_options());
  return schema;
}

Json plugins_schema() {
  const Json text = {{"type", "string"}};
  const Json pinned = {{"type", "object"},
                       {"properties", {{"path", text}, {"sha256", text}}},
                       {"required", {"path"}},
                       {"additionalProperties", false}};
  return {{"type", "array"}, {"items", {{"anyOf", {text, pinned}}}}};
}

std::vector<const Component*> networks(const Registry& registry) {
  std::vector<const Component*> all;
  for (const char* kind : {kModelKind, kVaeKind, kTextEncoderKind, kRewardKind}) {
    const auto more = sorted(registry, kind);
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

// As an item of a list of tables.
Json list_schema(const Registry& registry, const char* kind, std::vector<lb_option> host) {
  return {{"type", "array"},
          {"items", by_type(sorted(registry, kind), [&](const Component& component) {
             return object_with(host, component);
           })}};
}

}  // namespace

std::string to_markdown(const Registry& registry) {
  std::string out =
      "<!-- Written by `limbeck schema --format markdown`; a test compares the two. -->\n"
      "# The keys of a manifest\n\n"
      "A manifest is one TOML file. Unknown keys are errors, and so is a value of another type or "
      "outside its range; `limbeck check` tells all faults at once. Integers are taken for "
      "numbers. `--set key=value` on the command line replaces a value. Paths are relative to the "
      "manifest's folder unless a key says otherwise.\n";
  for (const auto& section : sections()) {
    out += cat("\n## ", section.title, "\n\n", section.text, *section.text == 0 ? "" : "\n",
               *section.text == 0 || section.options.empty() ? "" : "\n",
               options_text(section.options));
  }
  out +=
      "\n# Components\n\nWhat the plugins offer that come with limbeck. `type` says one of these "
      "names; the options go into the same table, those of a network into its `config`.\n";
  for (const auto& [kind, title] : kKinds) {
    const auto components = sorted(registry, kind);
    if (!components.empty()) {
      out += cat("\n## ", title, "\n");
    }
    for (const auto* component : components) {
      out += component_text(*component);
    }
  }
  return out;
}

std::string to_json_schema(const Registry& registry) {
  auto schema = object_of(top_options());
  auto& tables = schema["properties"];
  tables["plugins"] = plugins_schema();
  tables["run"] = object_of(run_options());
  tables["models"] = {{"type", "object"},
                      {"additionalProperties", by_type(networks(registry), role_with)}};
  const auto methods = sorted(registry, kMethodKind);
  tables["method"] = by_type(
      methods, [](const Component& component) { return object_with(method_options(), component); });
  tables["prepare"] = list_schema(registry, kPrepareKind, prepare_options());
  tables["losses"] = list_schema(registry, kLossKind, loss_options());
  tables["training"] = training_schema(registry);
  tables["callbacks"] = callbacks_schema(registry);
  tables["pipeline"] = object_of(pipeline_options());
  schema["required"] = {"plugins", "models", "training"};
  Json document = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                   {"title", "limbeck manifest"}};
  document.update(schema);
  return document.dump(1) + "\n";
}

}  // namespace limbeck
