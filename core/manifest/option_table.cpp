// SPDX-License-Identifier: Apache-2.0
#include "core/manifest/option_table.hpp"

#include <algorithm>
#include <charconv>

#include "core/base/text.hpp"

namespace limbeck {
namespace {

std::optional<double> parse_bound(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  text = text.substr(0, text.find_last_not_of(' ') + 1);
  double value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = read.ec == std::errc() && read.ptr == text.data() + text.size();
  return is_whole ? std::optional<double>(value) : std::nullopt;
}

std::string one_of(const std::vector<std::string>& choices) {
  std::string text;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) {
      text += i + 1 == choices.size() ? " or " : ", ";
    }
    text += "\"" + choices[i] + "\"";
  }
  return text;
}

const char* singular(lb_type type) {
  switch (type) {
    case LB_BOOL:
      return "true or false";
    case LB_INT:
      return "an integer";
    case LB_FLOAT:
      return "a number";
    case LB_STRING:
      return "a text";
    case LB_PATH:
      return "a path";
    default:
      return "a table";
  }
}

const char* plural(lb_type type) {
  switch (type) {
    case LB_BOOL:
      return "truth values";
    case LB_INT:
      return "integers";
    case LB_FLOAT:
      return "numbers";
    case LB_STRING:
      return "texts";
    case LB_PATH:
      return "paths";
    case LB_ENUM:
      return "the texts ";
    default:
      return "tables";
  }
}

}  // namespace

bool Range::contains(double value) const {
  const bool is_above = is_low_open ? value > low : value >= low;
  const bool is_below = is_high_open ? value < high : value <= high;
  return is_above && is_below;
}

std::optional<Range> parse_range(std::string_view text) {
  const size_t comma = text.find(',');
  if (text.size() < 5 || comma == std::string_view::npos) {
    return std::nullopt;
  }
  const char first = text.front();
  const char last = text.back();
  const auto low = parse_bound(text.substr(1, comma - 1));
  const auto high = parse_bound(text.substr(comma + 1, text.size() - comma - 2));
  const bool has_brackets = (first == '(' || first == '[') && (last == ')' || last == ']');
  if (!has_brackets || !low || !high || !(*low <= *high)) {
    return std::nullopt;
  }
  return Range{*low, *high, first == '(', last == ')'};
}

std::string expectation(const lb_option& option) {
  const std::string in_range = option.range == nullptr ? "" : cat(" in ", option.range);
  const std::string choices = option.type == LB_ENUM ? one_of(choices_of(option)) : "";
  if ((option.flags & LB_OPT_LIST) != 0) {
    return cat("a list of ", plural(option.type), choices, in_range);
  }
  return option.type == LB_ENUM ? choices : cat(singular(option.type), in_range);
}

std::vector<std::string> names_of(const std::vector<lb_option>& options) {
  std::vector<std::string> names;
  for (const auto& option : options) {
    names.emplace_back(option.name);
  }
  return names;
}

std::vector<std::string> taken_names(const std::vector<lb_option>& options) {
  std::vector<std::string> names;
  for (const auto& option : options) {
    if ((option.flags & (kUnavailable | kYields)) == 0) {
      names.emplace_back(option.name);
    }
  }
  return names;
}

std::vector<std::string> choices_of(const lb_option& option) {
  std::vector<std::string> choices;
  for (auto choice = option.choices; choice != nullptr && *choice != nullptr; ++choice) {
    choices.emplace_back(*choice);
  }
  return choices;
}

const lb_option* find_option(const std::vector<lb_option>& options, std::string_view name) {
  const auto found = std::find_if(options.begin(), options.end(),
                                  [name](const lb_option& option) { return option.name == name; });
  return found == options.end() ? nullptr : &*found;
}

std::string summary(const lb_option& option) {
  const std::string_view doc = option.doc == nullptr ? "" : option.doc;
  return std::string(doc.substr(0, doc.find('\n')));
}

}  // namespace limbeck
