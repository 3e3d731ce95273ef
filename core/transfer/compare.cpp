// SPDX-License-Identifier: Apache-2.0
#include "core/transfer/compare.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "core/transfer/numbers.hpp"

namespace limbeck {
namespace {

using Names = std::map<std::string, std::string>;  // name to compare -> name in the files

Names names_of(const TensorFiles& files, const std::string& prefix) {
  Names all, chosen;
  for (const auto& [name, shape] : files.tensors()) {
    all.emplace(name, name);
    if (name.starts_with(prefix)) {
      chosen.emplace(name.substr(prefix.size()), name);
    }
  }
  return chosen.empty() ? all : chosen;
}

void compare_numbers(const std::byte* a,
                     const std::byte* b,
                     uint64_t count,
                     TensorDifference& difference) {
  const auto &first = *difference.first.type, &second = *difference.second.type;
  const bool is_same = &first == &second;
  const uint64_t width = first.bits / 8;
  for (uint64_t i = 0; i < count; ++i) {
    if (is_same && std::memcmp(a + i * width, b + i * width, width) == 0) {
      continue;
    }
    const double x = number_at(first, a, i), y = number_at(second, b, i);
    const bool x_is_nan = std::isnan(x), y_is_nan = std::isnan(y);
    if (!is_same && (x == y || (x_is_nan && y_is_nan))) {
      continue;
    }
    ++difference.count;
    if (x_is_nan != y_is_nan) {
      ++difference.nans;
    } else if (!x_is_nan && x != y) {
      difference.max_abs = std::max(difference.max_abs, std::fabs(x - y));
    }
  }
}

// Both are of one shape.
void compare_values(const TensorFiles& first,
                    const std::string& first_name,
                    const TensorFiles& second,
                    const std::string& second_name,
                    TensorDifference& difference) {
  const auto &a = *difference.first.type, &b = *difference.second.type;
  const bool has_both = has_numbers(a) && has_numbers(b);
  if (!has_both && &a != &b) {
    return;
  }
  std::vector<std::byte> other;
  read_blocks(first, first_name, [&](const std::byte* data, uint64_t at, uint64_t bytes) {
    const uint64_t count = bytes * 8 / a.bits;
    other.resize(count * b.bits / 8);
    second.read(second_name, at * b.bits / a.bits, other.size(), other.data());
    if (&a == &b && std::memcmp(data, other.data(), bytes) == 0) {
      return;
    }
    if (has_both) {
      return compare_numbers(data, other.data(), count, difference);
    }
    for (uint64_t i = 0; i < bytes; ++i) {
      difference.count += data[i] != other[i] ? 1 : 0;
    }
  });
}

}  // namespace

TensorDifferences compare_tensors(const TensorFiles& first,
                                  const TensorFiles& second,
                                  const std::string& prefix) {
  const auto firsts = names_of(first, prefix), seconds = names_of(second, prefix);
  TensorDifferences all;
  for (const auto& [name, own] : firsts) {
    const auto found = seconds.find(name);
    if (found == seconds.end()) {
      all.only_first.push_back(name);
      continue;
    }
    TensorDifference difference{name, first.shape(own), second.shape(found->second), 0, 0, 0};
    if (difference.first.type != difference.second.type) {
      all.types.push_back(difference);
    }
    if (difference.first.sizes != difference.second.sizes) {
      all.shapes.push_back(difference);
      continue;
    }
    compare_values(first, own, second, found->second, difference);
    ++all.compared;
    if (difference.count > 0) {
      all.values.push_back(difference);
    }
  }
  for (const auto& [name, own] : seconds) {
    if (firsts.count(name) == 0) {
      all.only_second.push_back(name);
    }
  }
  return all;
}

}  // namespace limbeck
