// SPDX-License-Identifier: Apache-2.0
#include "core/manifest/host_values.hpp"

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/manifest/schema.hpp"

namespace limbeck {
namespace {

const ConfigValue& existing(const ConfigValue* value, const std::string& key) {
  if (value == nullptr) {
    throw Error(Fault::kInternal, cat("no value for the key \"", key, "\" of the manifest"));
  }
  return *value;
}

}  // namespace

template <class T>
const T& HostValues::typed(const std::string& key) const {
  const T* value = std::get_if<T>(&existing(find(key), key).value);
  if (value == nullptr) {
    throw Error(Fault::kInternal, cat("the key \"", key, "\" of the manifest has another type"));
  }
  return *value;
}

const ConfigValue* HostValues::find(const std::string& key) const {
  return find_value(*table_, key);
}

bool HostValues::is_given(const std::string& key) const {
  const ConfigValue* value = find(key);
  return value != nullptr && value->is_given;
}

Position HostValues::position(const std::string& key) const { return existing(find(key), key).at; }

bool HostValues::boolean(const std::string& key) const { return typed<bool>(key); }

int64_t HostValues::integer(const std::string& key) const { return typed<int64_t>(key); }

double HostValues::number(const std::string& key) const { return typed<double>(key); }

std::string HostValues::text(const std::string& key) const { return typed<std::string>(key); }

std::string HostValues::text_or(const std::string& key, const std::string& otherwise) const {
  return find(key) == nullptr ? otherwise : text(key);
}

}  // namespace limbeck
