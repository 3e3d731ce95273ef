// SPDX-License-Identifier: Apache-2.0
// Reading the tables of the ABI whose items may be longer or shorter than this host knows them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include <limbeck/abi.h>

namespace limbeck {

// The items as this host knows them; members beyond the stride of the table are zero.
template <class Item, class Table>
std::vector<Item> read_strided(const Table& table) {
  std::vector<Item> items(table.count, Item{});
  const auto* bytes = reinterpret_cast<const std::byte*>(table.items);
  const size_t known = std::min<size_t>(table.stride, sizeof(Item));
  for (size_t i = 0; i < items.size(); ++i) {
    std::memcpy(&items[i], bytes + i * table.stride, known);
  }
  return items;
}

inline std::vector<lb_option> read_options(const lb_options& table) {
  return read_strided<lb_option>(table);
}
inline std::vector<lb_role> read_roles(const lb_roles& table) {
  return read_strided<lb_role>(table);
}

}  // namespace limbeck
