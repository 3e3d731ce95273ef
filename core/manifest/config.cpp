// SPDX-License-Identifier: Apache-2.0
#include "core/manifest/config.hpp"

#include <charconv>
#include <string_view>

#include "core/base/error.hpp"
#include "core/base/log.hpp"
#include "core/base/text.hpp"

namespace limbeck {
namespace {

const ConfigValue* find_member(const ConfigValue::Table& table, std::string_view name) {
  for (const auto& [key, value] : table) {
    if (key == name) {
      return &value;
    }
  }
  return nullptr;
}

const ConfigValue* find_child(const ConfigValue& value, std::string_view name) {
  if (const auto* table = std::get_if<ConfigValue::Table>(&value.value)) {
    return find_member(*table, name);
  }
  const auto* list = std::get_if<ConfigValue::List>(&value.value);
  size_t index = 0;
  const auto read = std::from_chars(name.data(), name.data() + name.size(), index);
  const bool is_index = read.ec == std::errc() && read.ptr == name.data() + name.size();
  return list != nullptr && is_index && index < list->size() ? &(*list)[index] : nullptr;
}

// What the getters of "limbeck.config/1" do when a plugin asks for what it did not declare.
void report(const lb_config* config, const char* path, const char* wanted) {
  log::error("manifest", cat("a plugin asked for \"", path, "\" of [", config->key, "] as ", wanted,
                             ", which is not an option it declared: this is a bug of the plugin"));
}

const ConfigValue* find(const lb_config* config, const char* path) { return config->find(path); }

int64_t get_integer(const lb_config* config, const char* path) noexcept {
  if (const auto* found = find(config, path)) {
    if (const auto* integer = std::get_if<int64_t>(&found->value)) {
      return *integer;
    }
    if (const auto* boolean = std::get_if<bool>(&found->value)) {
      return *boolean ? 1 : 0;
    }
  }
  report(config, path, "an integer");
  return 0;
}

double get_number(const lb_config* config, const char* path) noexcept {
  if (const auto* found = find(config, path)) {
    if (const auto* number = std::get_if<double>(&found->value)) {
      return *number;
    }
    if (const auto* integer = std::get_if<int64_t>(&found->value)) {
      return static_cast<double>(*integer);
    }
  }
  report(config, path, "a number");
  return 0;
}

const char* get_text(const lb_config* config, const char* path) noexcept {
  if (const auto* found = find(config, path)) {
    if (const auto* text = std::get_if<std::string>(&found->value)) {
      return text->c_str();
    }
  }
  report(config, path, "a text");
  return "";
}

int64_t get_length(const lb_config* config, const char* path) noexcept {
  if (const auto* found = find(config, path)) {
    if (const auto* list = std::get_if<ConfigValue::List>(&found->value)) {
      return static_cast<int64_t>(list->size());
    }
    if (const auto* table = std::get_if<ConfigValue::Table>(&found->value)) {
      return static_cast<int64_t>(table->size());
    }
  }
  report(config, path, "a list or table");
  return 0;
}

const char* get_key(const lb_config* config, const char* path, int64_t index) noexcept {
  if (const auto* found = find(config, path)) {
    const auto* table = std::get_if<ConfigValue::Table>(&found->value);
    if (table != nullptr && index >= 0 && static_cast<size_t>(index) < table->size()) {
      return (*table)[static_cast<size_t>(index)].key.c_str();
    }
  }
  report(config, path, cat("a table with a key number ", index).c_str());
  return "";
}

int32_t get_given(const lb_config* config, const char* path) noexcept {
  if (const auto* found = find(config, path)) {
    return found->is_given ? 1 : 0;
  }
  report(config, path, "a value");
  return 0;
}

template <class T>
const T& typed(const lb_config& config, const std::string& path) {
  const auto* found = config.find(path);
  const T* value = found == nullptr ? nullptr : std::get_if<T>(&found->value);
  if (value == nullptr) {
    throw Error(Fault::kInternal, cat("[", config.key, "] has no \"", path, "\" of this type"));
  }
  return *value;
}

}  // namespace

const lb_config_api& config_api() {
  static const lb_config_api api = {
      .struct_size = sizeof(lb_config_api),
      .reserved = 0,
      .integer = get_integer,
      .number = get_number,
      .text = get_text,
      .length = get_length,
      .key = get_key,
      .given = get_given,
  };
  return api;
}

}  // namespace limbeck

const limbeck::ConfigValue* lb_config::find(const std::string& path) const {
  std::string_view rest = path;
  const limbeck::ConfigValue* value = nullptr;
  for (;;) {
    const size_t dot = rest.find('.');
    const std::string_view name = rest.substr(0, dot);
    value =
        value == nullptr ? limbeck::find_member(table, name) : limbeck::find_child(*value, name);
    if (value == nullptr || dot == std::string_view::npos) {
      return value;
    }
    rest.remove_prefix(dot + 1);
  }
}

bool lb_config::boolean(const std::string& path) const { return limbeck::typed<bool>(*this, path); }

int64_t lb_config::integer(const std::string& path) const {
  return limbeck::typed<int64_t>(*this, path);
}

double lb_config::number(const std::string& path) const {
  const auto* found = find(path);
  const auto* integer = found == nullptr ? nullptr : std::get_if<int64_t>(&found->value);
  return integer != nullptr ? static_cast<double>(*integer) : limbeck::typed<double>(*this, path);
}

std::string lb_config::text(const std::string& path) const {
  return limbeck::typed<std::string>(*this, path);
}
