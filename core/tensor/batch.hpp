// SPDX-License-Identifier: Apache-2.0
// lb_batch: named entries, each a tensor, a number, rows of text or another batch. Copies share
// their tensors. One batch is used on one thread at a time.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <ATen/ATen.h>

#include <limbeck/abi.h>

namespace limbeck {

using TextRows = std::vector<std::string>;
using BatchEntry = std::variant<at::Tensor, double, TextRows, std::shared_ptr<const lb_batch>>;

// "limbeck.batch/1".
const lb_batch_api& batch_api();

}  // namespace limbeck

struct lb_batch {
  std::map<std::string, limbeck::BatchEntry, std::less<>> entries;

  // The entry if it exists with that type, else nullptr.
  template <class T>
  const T* find(std::string_view name) const {
    const auto entry = entries.find(name);
    return entry == entries.end() ? nullptr : std::get_if<T>(&entry->second);
  }
  // Throws Error(kInternal) that names what the batch has instead.
  const at::Tensor& tensor(std::string_view name) const;
  double number(std::string_view name, double otherwise) const;

  void put(std::string name, limbeck::BatchEntry entry) {
    entries.insert_or_assign(std::move(name), std::move(entry));
  }
};
