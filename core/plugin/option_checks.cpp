// SPDX-License-Identifier: Apache-2.0
// Tables of options: every fault that a manifest could run into later is found when the plugin is
// loaded, and is the plugin's.
#include <algorithm>
#include <map>
#include <set>

#include "core/base/text.hpp"
#include "core/manifest/option_table.hpp"
#include "core/manifest/schema.hpp"
#include "core/manifest/strided.hpp"
#include "core/manifest/tables.hpp"
#include "core/manifest/toml.hpp"
#include "core/plugin/checks.hpp"
#include "core/plugin/plugin_text.hpp"

namespace limbeck {
namespace {

constexpr uint32_t kMaxOptions = 4096;
constexpr uint32_t kMaxChoices = 1024;
constexpr int kMaxDepth = 16;
constexpr uint32_t kKnownFlags =
    LB_OPT_LIST | LB_OPT_ON_RESUME | LB_OPT_DEPRECATED | LB_OPT_SECRET | LB_OPT_OPEN;

bool is_option_name(const char* name) {
  return name != nullptr && *name >= 'a' && *name <= 'z' &&
         is_component_name(bounded(name, kMaxName));
}

// "models.x.optimizer.learning_rate"
bool is_key(std::string_view text) {
  const bool has_only = std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  });
  return has_only && text.size() <= kMaxName && text.find('.') != text.npos &&
         text.find("..") == text.npos && text.front() != '.' && text.back() != '.';
}

bool is_too_long(const char* text) {
  return text != nullptr && bounded(text, kMaxText).size() > kMaxText;
}

Faults check_table(const lb_options& options, int depth, Header header);

Faults check_choices(const lb_option& option) {
  if (option.type != LB_ENUM) {
    return option.choices == nullptr ? Faults{} : Faults{"it has choices, but is not an LB_ENUM"};
  }
  if (option.choices == nullptr || option.choices[0] == nullptr) {
    return {"it is an LB_ENUM without choices"};
  }
  std::set<std::string_view> seen;
  for (uint32_t i = 0; option.choices[i] != nullptr; ++i) {
    if (i == kMaxChoices) {
      return {cat("its choices have no NULL after ", i, " entries")};
    }
    const auto choice = bounded(option.choices[i], kMaxName);
    if (choice.empty() || choice.size() > kMaxName) {
      return {cat("its choice ", i, " is ", in_quotes(option.choices[i]), ", expected 1 to ",
                  kMaxName, " characters")};
    }
    if (!seen.insert(choice).second) {
      return {cat("its choices have ", in_quotes(option.choices[i]), " twice")};
    }
  }
  return {};
}

Faults check_fields(const lb_option& option, int depth, Header header) {
  const bool is_open = (option.flags & LB_OPT_OPEN) != 0;
  if (option.type != LB_TABLE) {
    Faults faults;
    if (option.fields.count != 0) {
      faults.push_back("it has fields, but is not an LB_TABLE");
    }
    if (is_open) {
      faults.push_back("it has LB_OPT_OPEN, but is not an LB_TABLE");
    }
    return faults;
  }
  if (is_open && option.fields.count != 1) {
    return {cat("it has LB_OPT_OPEN and ", option.fields.count,
                " fields; exactly one says what every value is")};
  }
  return check_table(option.fields, depth + 1, header);
}

Faults check_range(const lb_option& option) {
  if (option.range == nullptr) {
    return {};
  }
  if (option.type != LB_INT && option.type != LB_FLOAT) {
    return {"it has a range, but is neither an LB_INT nor an LB_FLOAT"};
  }
  if (!parse_range(option.range)) {
    return {cat("its range ", in_quotes(option.range),
                " is not an interval like '(0, 1]' or '[1, inf)'")};
  }
  return {};
}

// Called for an option that is sound otherwise.
Faults check_default(const lb_option& option) {
  if (option.fallback == nullptr) {
    return {};
  }
  Node table;
  try {
    table.value = Node::Table{{option.name, {}, parse_value(option.fallback, {})}};
  } catch (const SyntaxFault& fault) {
    return {cat("its default ", shown(option.fallback), " is not TOML: ", fault.what())};
  }
  Diagnostics faults;
  check_values(table, {option}, "", {"/", faults, false});
  if (faults.has_errors()) {
    return {cat("its default ", shown(option.fallback), " is not ", expectation(option))};
  }
  return {};
}

Faults check_form(const lb_option& option, int depth, Header header) {
  for (const char* text : {option.doc, option.fallback, option.range}) {
    if (is_too_long(text)) {
      return {cat("one of its texts has no end within ", kMaxText, " bytes")};
    }
  }
  if (option.type < LB_BOOL || option.type > LB_TABLE) {
    return {cat("its type is ", option.type, ", expected ", LB_BOOL, " to ", LB_TABLE)};
  }
  Faults faults;
  if ((option.flags & ~kKnownFlags) != 0) {
    faults.push_back(cat("flags ", option.flags & ~kKnownFlags, " are unknown to this limbeck"));
  }
  if (is_empty(option.doc)) {
    faults.push_back("it has no doc, expected one sentence");
  }
  if (option.alias != nullptr && !is_key(bounded(option.alias, kMaxName))) {
    faults.push_back(cat("its alias is ", in_quotes(option.alias),
                         ", expected a key of the manifest like 'models.x.learning_rate'"));
  }
  for (const auto& more :
       {check_choices(option), check_fields(option, depth, header), check_range(option)}) {
    faults.insert(faults.end(), more.begin(), more.end());
  }
  return faults.empty() ? check_default(option) : faults;
}

Faults check_table(const lb_options& options, int depth, Header header) {
  if (options.count == 0) {
    return {};
  }
  if (options.count > kMaxOptions) {
    return {cat("a table of options claims ", options.count, " items, at most ", kMaxOptions,
                " are believed")};
  }
  if (Faults faults =
          check_size("a table of options has stride", options.stride, sizeof(lb_option), header);
      !faults.empty()) {
    return faults;
  }
  if (options.stride % alignof(lb_option) != 0) {
    return {cat("a table of options has stride ", options.stride, ", expected a multiple of ",
                alignof(lb_option))};
  }
  if (options.items == nullptr) {
    return {cat("a table of options claims ", options.count, " items, but its list is NULL")};
  }
  if (depth > kMaxDepth) {
    return {cat("its options are nested more than ", kMaxDepth, " deep")};
  }
  Faults faults;
  std::set<std::string> names;
  for (const lb_option& option : read_options(options)) {
    if (!is_option_name(option.name)) {
      faults.push_back(
          cat("an option is named ", shown(option.name), ", expected [a-z][a-z0-9_]*"));
      continue;
    }
    if (!names.insert(option.name).second) {
      faults.push_back(cat("option '", option.name, "' is declared twice"));
    }
    for (const auto& fault : check_form(option, depth, header)) {
      faults.push_back(cat("option '", option.name, "': ", fault));
    }
  }
  return faults;
}

}  // namespace

const std::vector<std::string>& host_keys(std::string_view kind) {
  static const std::map<std::string, std::vector<std::string>, std::less<>> keys = {
      {"limbeck.method/1", taken_names(method_options())},
      {"limbeck.prepare/1", taken_names(prepare_options())},
      {"limbeck.loss/1", taken_names(loss_options())},
      {"limbeck.callback/1", taken_names(callback_options())},
      {"limbeck.dataset/1", taken_names(data_options())},
  };
  static const std::vector<std::string> none;  // the others have a table of their own
  const auto found = keys.find(kind);
  return found == keys.end() ? none : found->second;
}

Faults check_options(const lb_options& options, std::string_view kind, Header header) {
  Faults faults = check_table(options, 0, header);
  if (!faults.empty()) {
    return faults;
  }
  for (const lb_option& option : read_options(options)) {
    const auto& keys = host_keys(kind);
    if (std::find(keys.begin(), keys.end(), option.name) != keys.end()) {
      faults.push_back(cat("option '", option.name,
                           "' has the name of a key that limbeck itself "
                           "reads in this table; rename it (taken: ",
                           join(keys), ")"));
    }
  }
  return faults;
}

}  // namespace limbeck
