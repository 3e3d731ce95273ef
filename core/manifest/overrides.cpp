// SPDX-License-Identifier: Apache-2.0
#include "core/manifest/overrides.hpp"

#include <algorithm>
#include <utility>

#include "core/base/text.hpp"
#include "core/manifest/toml.hpp"

namespace limbeck {
namespace {

std::string trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  return first == std::string_view::npos
             ? std::string()
             : std::string(text.substr(first, text.find_last_not_of(" \t") - first + 1));
}

// "prepare[0].rate" -> "prepare.0.rate"
std::string dotted(const std::string& key) {
  std::string path;
  for (const char c : key) {
    if (c == '[') {
      path += '.';
    } else if (c != ']') {
      path += c;
    }
  }
  return path;
}

bool has_empty_name(const std::string& path) {
  const auto names = split_path(path);
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return name.empty(); });
}

Node read_value(const std::string& text, const Position& at) {
  try {
    return parse_value(text, at);
  } catch (const SyntaxFault&) {
    const bool looks_structured =
        !text.empty() && std::string_view("[{\"'").find(text.front()) != std::string_view::npos;
    if (looks_structured) {
      throw;
    }
    return {text, at};
  }
}

// Sets the last name of `path`. Empty: done; else why not.
std::string set_path(Node& root, const std::string& path, Node value) {
  const size_t dot = path.rfind('.');
  const std::string parent_path = dot == std::string::npos ? "" : path.substr(0, dot);
  const std::string name = dot == std::string::npos ? path : path.substr(dot + 1);
  std::string blocked;
  Node* parent = parent_path.empty() ? &root : make_path(root, parent_path, value.at, blocked);
  if (parent != nullptr && parent->table() != nullptr) {
    const Position at = value.at;
    set_member(*parent, {name, at, std::move(value)});
    return "";
  }
  if (parent == nullptr) {
    parent = find_path(root, blocked);
  } else {
    blocked = parent_path;
  }
  if (parent->list() != nullptr) {
    if (Node* item = find_path(root, path)) {
      *item = std::move(value);
      return "";
    }
    return cat(blocked, " is a list of ", parent->list()->size(), " items");
  }
  return cat(blocked, " is ", describe(*parent), ", not a table");
}

}  // namespace

void apply_override(Node& root, const std::string& text, Diagnostics& diagnostics) {
  const Position at{"--set", 0, 0};
  const size_t equals = text.find('=');
  const std::string key = trim(std::string_view(text).substr(0, equals));
  const std::string path = dotted(key);
  if (equals == std::string::npos || has_empty_name(path)) {
    diagnostics.error(at, cat("expected key=value, got \"", text, "\""),
                      "such as --set training.loop.max_train_steps=100");
    return;
  }
  try {
    const std::string fault = set_path(root, path, read_value(trim(text.substr(equals + 1)), at));
    if (!fault.empty()) {
      diagnostics.error(at, cat("cannot set ", key, ": ", fault));
    }
  } catch (const SyntaxFault& fault) {
    diagnostics.error(at, cat(key, ": not TOML: ", fault.what()));
  }
}

}  // namespace limbeck
