// SPDX-License-Identifier: Apache-2.0
#include "core/base/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>

namespace limbeck {
namespace {

// Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours cost 1.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1);
  std::vector<size_t> last(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) {
    last[j] = j;
  }
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitution = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, substitution});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::string join(const std::vector<std::string>& items, std::string_view between) {
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) {
      text += between;
    }
    text += items[i];
  }
  return text;
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  size_t best_distance = std::max<size_t>(2, word.size() / 3);
  const std::string* best = nullptr;
  for (const auto& candidate : candidates) {
    const size_t d = distance(word, candidate);
    if (d < best_distance || (d == best_distance && best == nullptr)) {
      best_distance = d;
      best = &candidate;
    }
  }
  return best == nullptr ? std::string() : *best;
}

std::optional<double> seconds_of(std::string_view text) {
  struct Unit {
    char letter;
    int64_t seconds;
  };
  constexpr std::array kUnits = {Unit{'d', 86400}, Unit{'h', 3600}, Unit{'m', 60}, Unit{'s', 1}};
  double sum = 0;
  for (const auto& unit : kUnits) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && number >= 0 && end != text.data() + text.size() &&
        *end == unit.letter) {
      sum += static_cast<double>(number) * static_cast<double>(unit.seconds);
      text.remove_prefix(static_cast<size_t>(end + 1 - text.data()));
    }
  }
  return text.empty() ? std::optional<double>(sum) : std::nullopt;
}

std::string shortest(double value) {
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  return std::string(digits.data(), end.ptr);
}

}  // namespace limbeck
