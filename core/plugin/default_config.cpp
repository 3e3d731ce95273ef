// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/default_config.hpp"

#include <cmath>
#include <deque>

#include "core/base/text.hpp"
#include "core/manifest/config.hpp"
#include "core/manifest/node.hpp"
#include "core/manifest/option_table.hpp"
#include "core/manifest/schema.hpp"
#include "core/manifest/strided.hpp"
#include "core/manifest/toml.hpp"

namespace limbeck {
namespace {

double number_in(const lb_option& option) {
  if (option.range == nullptr) {
    return 1;
  }
  const Range range = *parse_range(option.range);
  if (range.contains(1)) {
    return 1;
  }
  const double step = option.type == LB_INT ? 1 : 1e-3;
  for (const double candidate : {std::ceil(range.low), range.low + step, std::floor(range.high),
                                 range.high - step, (range.low + range.high) / 2}) {
    if (range.contains(candidate)) {
      return candidate;
    }
  }
  return range.low;
}

// A value that the option's row allows, as TOML.
std::string made_up_value(const lb_option& option) {
  std::string value;
  switch (option.type) {
    case LB_BOOL:
      value = "false";
      break;
    case LB_INT:
      value = cat(static_cast<int64_t>(number_in(option)));
      break;
    case LB_FLOAT:
      value = float_text(number_in(option));
      break;
    case LB_ENUM:
      value = limbeck::quoted(choices_of(option).front());
      break;
    case LB_TABLE: {
      std::vector<std::string> members;
      if ((option.flags & LB_OPT_OPEN) == 0) {
        for (const lb_option& field : read_options(option.fields)) {
          if (field.fallback == nullptr) {
            members.push_back(cat(field.name, " = ", made_up_value(field)));
          }
        }
      }
      value = members.empty() ? "{}" : "{ " + join(members) + " }";
      break;
    }
    default:
      value = "\"x\"";
  }
  return (option.flags & LB_OPT_LIST) != 0 ? "[" + value + "]" : value;
}

}  // namespace

DefaultConfig default_config(const Component& component) {
  DefaultConfig made;
  std::deque<std::string> texts;  // deque: rows point into its strings
  std::vector<lb_option> rows = read_options(component.table->options);
  for (lb_option& row : rows) {
    if (row.fallback == nullptr) {
      row.fallback = texts.emplace_back(made_up_value(row)).c_str();
      made.made_up.emplace_back(row.name);
    }
  }
  Node nothing;
  nothing.value = Node::Table{};
  Diagnostics ignored;  // defaults are inside their ranges
  auto config = std::make_shared<lb_config>();
  config->key = component.name();
  config->table = check_values(nothing, rows, "", {"/", ignored, false});
  made.config = std::move(config);
  return made;
}

}  // namespace limbeck
