// SPDX-License-Identifier: Apache-2.0
// Typed reads from a checked table of the host's own keys.
#pragma once

#include <cstdint>
#include <string>

#include "core/manifest/config.hpp"
#include "core/manifest/diagnostics.hpp"

namespace limbeck {

// A view: the table must outlive it. Reads of a key that has no value, or another type, throw
// Error(kInternal): the table was checked against the options that name it.
class HostValues {
 public:
  explicit HostValues(const ConfigValue::Table& table) : table_(&table) {}

  const ConfigValue* find(const std::string& key) const;  // nullptr: no value
  bool is_given(const std::string& key) const;            // by the user
  Position position(const std::string& key) const;        // of the value, which must exist

  bool boolean(const std::string& key) const;
  int64_t integer(const std::string& key) const;
  double number(const std::string& key) const;
  std::string text(const std::string& key) const;
  std::string text_or(const std::string& key, const std::string& otherwise) const;

 private:
  template <class T>
  const T& typed(const std::string& key) const;

  const ConfigValue::Table* table_;
};

}  // namespace limbeck
