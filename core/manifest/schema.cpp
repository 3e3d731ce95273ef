// SPDX-License-Identifier: Apache-2.0
#include "core/manifest/schema.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/text.hpp"
#include "core/manifest/option_table.hpp"
#include "core/manifest/strided.hpp"
#include "core/manifest/tables.hpp"
#include "core/manifest/toml.hpp"

namespace limbeck {
namespace {

constexpr size_t kMostKeysInHint = 16;

// One value and the option it must satisfy.
struct Claim {
  const Node& node;
  const lb_option& option;
  const std::string& key;
};

ConfigValue zero_of(const lb_option& option, const Position& at, bool is_given) {
  ConfigValue zero;
  zero.at = at;
  zero.is_given = is_given;
  if ((option.flags & LB_OPT_LIST) != 0) {
    zero.value = ConfigValue::List{};
    return zero;
  }
  switch (option.type) {
    case LB_BOOL:
      zero.value = false;
      break;
    case LB_INT:
      zero.value = int64_t{0};
      break;
    case LB_FLOAT:
      zero.value = 0.0;
      break;
    case LB_TABLE:
      zero.value = ConfigValue::Table{};
      break;
    default:
      zero.value = std::string();
  }
  return zero;
}

std::string hint_for(const Claim& claim) {
  const std::string* text = claim.node.text();
  const auto* list = claim.node.list();
  if ((claim.option.flags & LB_OPT_LIST) != 0) {
    const bool wants_text = claim.option.type == LB_STRING || claim.option.type == LB_PATH ||
                            claim.option.type == LB_ENUM;
    if (list != nullptr || claim.node.table() != nullptr) {
      return "";
    }
    return text != nullptr && !wants_text ? cat("write [", *text, "]")
                                          : cat("write [", value_text(claim.node), "]");
  }
  if (list != nullptr && list->size() == 1) {
    return cat("write ", value_text(list->front()), " without brackets");
  }
  if (text == nullptr) {
    return "";
  }
  if (claim.option.type == LB_ENUM) {
    const std::string guess = nearest(*text, choices_of(claim.option));
    return guess.empty() ? "" : cat("did you mean \"", guess, "\"?");
  }
  const bool wants_bare =
      claim.option.type == LB_BOOL || claim.option.type == LB_INT || claim.option.type == LB_FLOAT;
  return wants_bare ? "write it without quotes" : "";
}

// Reports a claim that does not hold and returns zero in place of its value.
ConfigValue refuse(const Claim& claim, const CheckScope& scope) {
  scope.diagnostics.error(
      claim.node.at,
      cat(claim.key, ": expected ", expectation(claim.option), ", got ", describe(claim.node)),
      hint_for(claim));
  return zero_of(claim.option, claim.node.at, scope.is_given);
}

bool is_in_range(const lb_option& option, double value) {
  const auto range = option.range == nullptr ? std::nullopt : parse_range(option.range);
  return !std::isnan(value) && (!range || range->contains(value));
}

bool is_choice(const lb_option& option, const std::string& text) {
  for (const auto& choice : choices_of(option)) {
    if (choice == text) {
      return true;
    }
  }
  return false;
}

std::string absolute(const std::string& path, const std::filesystem::path& folder) {
  return path.empty() ? path : (folder / path).lexically_normal().string();
}

// Numbers, texts and truth values. False: it is none that the option takes.
bool read_scalar(const Claim& claim, const CheckScope& scope, ConfigValue& out) {
  const auto& [node, option, key] = claim;
  const auto* integer = std::get_if<int64_t>(&node.value);
  const auto* number = std::get_if<double>(&node.value);
  const std::string* text = node.text();
  switch (option.type) {
    case LB_BOOL:
      if (const auto* boolean = std::get_if<bool>(&node.value)) {
        out.value = *boolean;
        return true;
      }
      return false;
    case LB_INT:
      out.value = integer == nullptr ? 0 : *integer;
      return integer != nullptr && is_in_range(option, static_cast<double>(*integer));
    case LB_FLOAT: {
      const bool is_number = integer != nullptr || number != nullptr;
      const double value = integer != nullptr  ? static_cast<double>(*integer)
                           : number != nullptr ? *number
                                               : 0.0;
      out.value = value;
      return is_number && is_in_range(option, value);
    }
    case LB_ENUM:
      out.value = text == nullptr ? "" : *text;
      return text != nullptr && is_choice(option, *text);
    default: {
      // A plugin sees texts as NUL-terminated.
      const bool is_text = text != nullptr && text->find('\0') == std::string::npos;
      out.value = !is_text                 ? std::string()
                  : option.type == LB_PATH ? absolute(*text, scope.folder)
                                           : *text;
      return is_text;
    }
  }
}

ConfigValue check_item(const Claim& claim, const CheckScope& scope);

ConfigValue::Table check_open_table(const Claim& claim, const CheckScope& scope) {
  const lb_option field = read_options(claim.option.fields).front();
  ConfigValue::Table out;
  for (const auto& member : *claim.node.table()) {
    const std::string key = join_key(claim.key, member.key);
    out.push_back({member.key, check_item({member.node, field, key}, scope)});
  }
  return out;
}

ConfigValue check_item(const Claim& claim, const CheckScope& scope) {
  ConfigValue out;
  out.at = claim.node.at;
  out.is_given = scope.is_given;
  if (claim.option.type != LB_TABLE) {
    return read_scalar(claim, scope, out) ? out : refuse(claim, scope);
  }
  if (claim.node.table() == nullptr) {
    return refuse(claim, scope);
  }
  out.value = (claim.option.flags & LB_OPT_OPEN) != 0
                  ? check_open_table(claim, scope)
                  : check_table(claim.node, read_options(claim.option.fields), claim.key, scope);
  return out;
}

ConfigValue check_option(const Claim& claim, const CheckScope& scope) {
  if ((claim.option.flags & LB_OPT_LIST) == 0) {
    return check_item(claim, scope);
  }
  if (claim.node.list() == nullptr) {
    return refuse(claim, scope);
  }
  lb_option item_option = claim.option;
  item_option.flags &= ~uint32_t{LB_OPT_LIST};
  ConfigValue::List items;
  for (const auto& item : *claim.node.list()) {
    const std::string key = cat(claim.key, "[", items.size(), "]");
    items.push_back(check_item({item, item_option, key}, scope));
  }
  return {std::move(items), scope.is_given, claim.node.at};
}

// A table, or a list of tables, whose members somebody else checks.
void check_shape(const Claim& claim, const CheckScope& scope) {
  const auto* list = claim.node.list();
  const bool wants_list = (claim.option.flags & LB_OPT_LIST) != 0;
  const bool is_right =
      wants_list ? list != nullptr && std::all_of(list->begin(), list->end(),
                                                  [](const Node& item) { return item.table(); })
                 : claim.node.table() != nullptr;
  if (!is_right) {
    refuse(claim, scope);
  }
}

// Of a value that has the right type.
void check_fixed(const Claim& claim, const CheckScope& scope) {
  const lb_option& option = claim.option;
  if (!is_same_value(claim.node, parse_value(option.fallback, claim.node.at)) &&
      !scope.diagnostics.has_error_at(claim.node.at)) {
    scope.diagnostics.error(claim.node.at,
                            cat(claim.key, ": ", value_text(claim.node),
                                " is not available in this version; expected ", option.fallback));
  }
}

ConfigValue default_of(const lb_option& option,
                       const std::string& key,
                       const Position& at,
                       const CheckScope& scope) {
  if (option.fallback == nullptr) {
    scope.diagnostics.error(at, cat("missing key \"", key, "\": ", expectation(option)),
                            summary(option));
    return zero_of(option, at, false);
  }
  // Defaults were checked when their plugin was loaded; nothing is reported here.
  Diagnostics faults;
  return check_option({parse_value(option.fallback, at), option, key},
                      {scope.folder, faults, false});
}

void report_unavailable(const Member& member,
                        const lb_option& option,
                        const std::string& key,
                        Diagnostics& diagnostics) {
  diagnostics.error(member.key_at, cat("\"", key, "\" is not available in this version"),
                    summary(option));
}

// "[method]", or several tables that have an option of this name; empty: none has.
std::string component_homes(const std::string& name, const CheckScope& scope) {
  std::vector<std::string> tables;
  for (const auto& home : scope.homes == nullptr ? std::vector<KeyHome>() : *scope.homes) {
    if (home.key == name) {
      tables.push_back("[" + home.table + "]");
    }
  }
  return join(tables);
}

std::string hint_for_key(const std::string& name,
                         const std::vector<lb_option>& known,
                         const CheckScope& scope) {
  std::vector<std::string> names;
  for (const auto& option : known) {
    if ((option.flags & (kUnavailable | kForwarded | LB_OPT_DEPRECATED)) == 0) {
      names.emplace_back(option.name);
    }
  }
  if (const std::string home = home_of(name); !home.empty()) {
    return cat("it is a key of [", home, "]");
  }
  if (const std::string homes = component_homes(name, scope); !homes.empty()) {
    return cat("it is a key of ", homes);
  }
  const std::string guess = nearest(name, names);
  if (!guess.empty()) {
    return cat("did you mean \"", guess, "\"?");
  }
  if (names.empty()) {
    return "no keys are known here";
  }
  const bool is_cut = names.size() > kMostKeysInHint;
  names.resize(std::min(names.size(), kMostKeysInHint));
  return cat("known keys: ", join(names), is_cut ? ", ..." : "");
}

}  // namespace

std::string join_key(const std::string& table, std::string_view name) {
  return table.empty() ? std::string(name) : cat(table, ".", name);
}

void check_keys(const Node& table,
                const std::vector<lb_option>& known,
                const std::string& key,
                const CheckScope& scope) {
  for (const auto& member : *table.table()) {
    if (find_option(known, member.key) == nullptr) {
      scope.diagnostics.error(member.key_at, cat("unknown key \"", join_key(key, member.key), "\""),
                              hint_for_key(member.key, known, scope));
    }
  }
}

ConfigValue::Table check_values(const Node& table,
                                const std::vector<lb_option>& options,
                                const std::string& key,
                                const CheckScope& scope) {
  ConfigValue::Table out;
  for (const auto& option : options) {
    const std::string option_key = join_key(key, option.name);
    const Node* given = table.find(option.name);
    if (given == nullptr) {
      if ((option.flags & (kOptional | kUnavailable | kElsewhere)) == 0) {
        out.push_back({option.name, default_of(option, option_key, table.at, scope)});
      }
      continue;
    }
    const Member& member = member_of(table, option.name);
    if ((option.flags & kUnavailable) != 0) {
      report_unavailable(member, option, option_key, scope.diagnostics);
      continue;
    }
    if ((option.flags & LB_OPT_DEPRECATED) != 0) {
      scope.diagnostics.warn(member.key_at, cat("\"", option_key, "\" is deprecated"),
                             summary(option));
    }
    const Claim claim{*given, option, option_key};
    if ((option.flags & kElsewhere) != 0) {
      check_shape(claim, scope);
      continue;
    }
    out.push_back({option.name, check_option(claim, scope)});
    if ((option.flags & kFixed) != 0) {
      check_fixed(claim, scope);
    }
  }
  return out;
}

ConfigValue::Table check_table(const Node& table,
                               const std::vector<lb_option>& options,
                               const std::string& key,
                               const CheckScope& scope) {
  check_keys(table, options, key, scope);
  return check_values(table, options, key, scope);
}

const ConfigValue* find_value(const ConfigValue::Table& table, std::string_view name) {
  for (const auto& [key, value] : table) {
    if (key == name) {
      return &value;
    }
  }
  return nullptr;
}

}  // namespace limbeck
