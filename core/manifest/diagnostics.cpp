// SPDX-License-Identifier: Apache-2.0
#include "core/manifest/diagnostics.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/log.hpp"
#include "core/base/text.hpp"

namespace limbeck {
namespace {

auto place_of(const Diagnostics::Item& item) {
  return std::tie(item.at.file, item.at.line, item.at.column);
}

bool is_same(const Diagnostics::Item& a, const Diagnostics::Item& b) {
  return place_of(a) == place_of(b) && a.message == b.message;
}

std::string to_text(const Diagnostics::Item& item) {
  const std::string place = to_string(item.at);
  std::string text = place.empty() ? item.message : cat(place, ": ", item.message);
  if (!item.hint.empty()) {
    text += "\n  hint: " + item.hint;
  }
  return text;
}

}  // namespace

std::string to_string(const Position& position) {
  if (position.line == 0) {
    return position.file;
  }
  if (position.column == 0) {
    return cat(position.file, ":", position.line);
  }
  return cat(position.file, ":", position.line, ":", position.column);
}

void Diagnostics::error(Position at, std::string message, std::string hint) {
  items_.push_back({std::move(at), std::move(message), std::move(hint), true});
}

void Diagnostics::warn(Position at, std::string message, std::string hint) {
  items_.push_back({std::move(at), std::move(message), std::move(hint), false});
}

void Diagnostics::add(const Diagnostics& more) {
  items_.insert(items_.end(), more.items_.begin(), more.items_.end());
}

bool Diagnostics::has_errors() const {
  return std::any_of(items_.begin(), items_.end(), [](const Item& item) { return item.is_error; });
}

bool Diagnostics::has_error_at(const Position& at) const {
  return std::any_of(items_.begin(), items_.end(), [&at](const Item& item) {
    return item.is_error && std::tie(item.at.file, item.at.line, item.at.column) ==
                                std::tie(at.file, at.line, at.column);
  });
}

std::vector<Diagnostics::Item> Diagnostics::items() const {
  auto sorted = items_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Item& a, const Item& b) { return place_of(a) < place_of(b); });
  // One fault can be met on several ways, such as a value that several roles inherit.
  sorted.erase(std::unique(sorted.begin(), sorted.end(), is_same), sorted.end());
  return sorted;
}

void Diagnostics::throw_if_errors() const {
  std::string text;
  size_t count = 0;
  for (const auto& item : items()) {
    if (item.is_error) {
      text += to_text(item) + "\n";
      ++count;
    } else {
      log::warn("manifest", to_text(item));
    }
  }
  if (count > 0) {
    throw Error(Fault::kManifest, cat(text, count, count == 1 ? " error" : " errors"));
  }
}

}  // namespace limbeck
