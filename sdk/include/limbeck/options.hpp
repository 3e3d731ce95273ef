// SPDX-License-Identifier: Apache-2.0
// Options of a component: one struct that is visited twice, once to make the table the host checks
// a manifest against, once to read the values.
//
//   struct Options {
//     double rate = 0.1;
//     template <class V>
//     void visit(V& v) {
//       v("rate", rate, "Share of samples that lose their text.", "[0, 1]");
//     }
//   };
//
// The initial value of a member is the option's default. Members may be bool, int64_t, double,
// std::string and vectors of the last three. A range is an interval: "(0, 1]", "[1, inf)".
#pragma once

#include <charconv>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <limbeck/error.hpp>

namespace lb {
inline namespace v1 LB_HIDDEN {

namespace detail {

template <class T>
struct ListItem {
  using type = T;
  static constexpr bool is_list = false;
};
template <class T>
struct ListItem<std::vector<T>> {
  using type = T;
  static constexpr bool is_list = true;
};

template <class T>
constexpr lb_type option_type() {
  if constexpr (std::is_same_v<T, bool>) {
    return LB_BOOL;
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return LB_INT;
  } else if constexpr (std::is_same_v<T, double>) {
    return LB_FLOAT;
  } else {
    static_assert(std::is_same_v<T, std::string>,
                  "an option is bool, int64_t, double, std::string or a vector of these");
    return LB_STRING;
  }
}

// Values as TOML text.
inline std::string toml(bool value) { return value ? "true" : "false"; }
inline std::string toml(int64_t value) { return std::to_string(value); }
inline std::string toml(double value) {
  char digits[64];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  std::string text(digits, end);
  const bool is_integer = text.find_first_not_of("-0123456789") == std::string::npos;
  return is_integer ? text + ".0" : text;
}
inline std::string toml(const std::string& value) {
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      text += '\\';
    }
    text += c;
  }
  return text + '"';
}
template <class T>
std::string toml(const std::vector<T>& values) {
  std::string text = "[";
  for (const auto& value : values) {
    text += (text.size() == 1 ? "" : ", ") + toml(static_cast<const T&>(value));
  }
  return text + "]";
}

}  // namespace detail

// Visitor that builds the table. Its rows point into it: it must not move once they are used.
class OptionTable {
 public:
  OptionTable() = default;
  OptionTable(const OptionTable&) = delete;
  OptionTable& operator=(const OptionTable&) = delete;

  // An option with the member's value as default.
  template <class T>
  OptionTable& operator()(const char* name,
                          T& value,
                          const char* doc,
                          const char* range = nullptr) {
    return add<T>(name, doc, text(detail::toml(value)), range);
  }
  // One without a default: the manifest must give it.
  template <class T>
  OptionTable& required(const char* name, T&, const char* doc, const char* range = nullptr) {
    return add<T>(name, doc, nullptr, range);
  }
  // One of a few words.
  OptionTable& choice(const char* name,
                      std::string& value,
                      const char* doc,
                      std::initializer_list<const char*> choices) {
    add<std::string>(name, doc, text(detail::toml(value)), nullptr);
    choices_.emplace_back(choices).push_back(nullptr);
    rows_.back().type = LB_ENUM;
    rows_.back().choices = choices_.back().data();
    return *this;
  }
  // A path, or a list of them; relative ones count from the manifest's folder.
  template <class T>
  OptionTable& path(const char* name, T& value, const char* doc) {
    (*this)(name, value, doc);
    rows_.back().type = LB_PATH;
    return *this;
  }
  template <class T>
  OptionTable& required_path(const char* name, T& value, const char* doc) {
    required(name, value, doc);
    rows_.back().type = LB_PATH;
    return *this;
  }
  // Whether the user gave option `name`; no row of the table.
  OptionTable& given(const char*, bool&) { return *this; }

  // These change the row that was added last.
  OptionTable& on_resume() { return flag(LB_OPT_ON_RESUME); }
  OptionTable& deprecated() { return flag(LB_OPT_DEPRECATED); }
  OptionTable& secret() { return flag(LB_OPT_SECRET); }
  // Another name of a manifest key outside this table: "models.critic.optimizer.learning_rate".
  OptionTable& alias(const char* key) {
    rows_.back().alias = key;
    return *this;
  }

  lb_options table() const {
    return {static_cast<uint32_t>(sizeof(lb_option)), static_cast<uint32_t>(rows_.size()),
            rows_.data()};
  }

 private:
  template <class T>
  OptionTable& add(const char* name, const char* doc, const char* fallback, const char* range) {
    using Item = detail::ListItem<T>;
    lb_option row{};
    row.name = name;
    row.type = detail::option_type<typename Item::type>();
    row.flags = Item::is_list ? static_cast<uint32_t>(LB_OPT_LIST) : 0U;
    row.doc = doc;
    row.fallback = fallback;
    row.range = range;
    rows_.push_back(row);
    return *this;
  }
  OptionTable& flag(uint32_t bit) {
    rows_.back().flags |= bit;
    return *this;
  }
  const char* text(std::string value) { return texts_.emplace_back(std::move(value)).c_str(); }

  std::vector<lb_option> rows_;
  std::deque<std::string> texts_;  // deque: rows point into its strings
  std::deque<std::vector<const char*>> choices_;
};

// Visitor that reads the values of a checked table.
class OptionValues {
 public:
  explicit OptionValues(const lb_config* config) : config_(config) {}

  template <class T>
  OptionValues& operator()(const char* name, T& value, const char*, const char* = nullptr) {
    read(name, value);
    return *this;
  }
  template <class T>
  OptionValues& required(const char* name, T& value, const char*, const char* = nullptr) {
    read(name, value);
    return *this;
  }
  OptionValues& choice(const char* name,
                       std::string& value,
                       const char*,
                       std::initializer_list<const char*>) {
    read(name, value);
    return *this;
  }
  template <class T>
  OptionValues& path(const char* name, T& value, const char*) {
    read(name, value);
    return *this;
  }
  template <class T>
  OptionValues& required_path(const char* name, T& value, const char*) {
    read(name, value);
    return *this;
  }
  OptionValues& given(const char* name, bool& value) {
    value = services.config->given(config_, name) != 0;
    return *this;
  }
  OptionValues& on_resume() { return *this; }
  OptionValues& deprecated() { return *this; }
  OptionValues& secret() { return *this; }
  OptionValues& alias(const char*) { return *this; }

 private:
  void read(const char* name, bool& value) const {
    value = services.config->integer(config_, name) != 0;
  }
  void read(const char* name, int64_t& value) const {
    value = services.config->integer(config_, name);
  }
  void read(const char* name, double& value) const {
    value = services.config->number(config_, name);
  }
  void read(const char* name, std::string& value) const {
    const char* text = services.config->text(config_, name);
    value = text == nullptr ? "" : text;
  }
  template <class T>
  void read(const char* name, std::vector<T>& values) const {
    values.clear();
    const auto length = services.config->length(config_, name);
    for (int64_t i = 0; i < length; ++i) {
      read((std::string(name) + "." + std::to_string(i)).c_str(), values.emplace_back());
    }
  }

  const lb_config* config_;
};

}  // namespace v1
}  // namespace lb
