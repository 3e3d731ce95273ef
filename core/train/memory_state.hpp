// SPDX-License-Identifier: Apache-2.0
// The state of a component in memory: what save() wrote, for load() to read.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include <ATen/ATen.h>

#include <limbeck/abi.h>

#include "core/tensor/batch.hpp"

namespace limbeck {

// The ABI's lb_writer and lb_reader over a map. One save() fills one of these. [control]
class MemoryState {
 public:
  struct Batch {
    lb_batch entries;
  };
  using Value = std::variant<int64_t, double, std::string, at::Tensor, Batch>;

  MemoryState();
  MemoryState(const MemoryState&) = delete;
  MemoryState& operator=(const MemoryState&) = delete;

  lb_writer* writer() { return &writer_; }
  // `version`: the component's state_version.
  const lb_reader* reader(uint32_t version);

  const std::map<std::string, Value>& values() const { return values_; }
  bool is_empty() const { return values_.empty(); }
  // Names that no reader has asked for.
  std::vector<std::string> unread() const;
  // Names that were written twice, or are not [a-z0-9_.]+.
  const std::vector<std::string>& bad_names() const { return bad_names_; }
  // The first name under which two states differ in a bit; "" if there is none.
  std::string difference(const MemoryState& other) const;

  void put(const char* name, Value value);
  template <class T>
  const T* find(const char* name) const {
    const auto found = values_.find(name == nullptr ? "" : name);
    if (found != values_.end()) {
      read_.insert(found->first);
    }
    return found == values_.end() ? nullptr : std::get_if<T>(&found->second);
  }

 private:
  lb_writer writer_{};
  lb_reader reader_{};
  std::map<std::string, Value> values_;
  std::vector<std::string> bad_names_;
  mutable std::set<std::string> read_;
};

}  // namespace limbeck
