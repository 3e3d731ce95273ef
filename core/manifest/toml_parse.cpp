// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <tuple>
#include <utility>

#include <toml++/toml.h>

#include "core/manifest/toml.hpp"

namespace limbeck {
namespace {

Position to_position(const toml::source_region& region, const std::string& file) {
  return {file, region.begin.line, region.begin.column};
}

Node to_node(const toml::node& from, const std::string& file);

// The library sorts tables by name; places bring back the order of the file.
Node::Table to_members(const toml::table& from, const std::string& file) {
  Node::Table members;
  for (const auto& [key, value] : from) {
    members.push_back(
        {std::string(key.str()), to_position(key.source(), file), to_node(value, file)});
  }
  std::stable_sort(members.begin(), members.end(), [](const Member& a, const Member& b) {
    return std::tie(a.key_at.line, a.key_at.column) < std::tie(b.key_at.line, b.key_at.column);
  });
  return members;
}

Node to_node(const toml::node& from, const std::string& file) {
  Node node;
  node.at = to_position(from.source(), file);
  if (const auto* table = from.as_table()) {
    node.value = to_members(*table, file);
  } else if (const auto* list = from.as_array()) {
    auto& items = node.value.emplace<Node::List>();
    for (const auto& item : *list) {
      items.push_back(to_node(item, file));
    }
  } else if (const auto* text = from.as_string()) {
    node.value = text->get();
  } else if (const auto* integer = from.as_integer()) {
    node.value = integer->get();
  } else if (const auto* number = from.as_floating_point()) {
    node.value = number->get();
  } else if (const auto* boolean = from.as_boolean()) {
    node.value = boolean->get();
  } else {
    node.value = Node::Moment{};
  }
  return node;
}

void move_to(Node& node, const Position& at) {
  node.at = at;
  if (auto* list = std::get_if<Node::List>(&node.value)) {
    for (auto& item : *list) {
      move_to(item, at);
    }
  } else if (auto* members = std::get_if<Node::Table>(&node.value)) {
    for (auto& member : *members) {
      member.key_at = at;
      move_to(member.node, at);
    }
  }
}

// "Error while parsing array: expected ..." -> "array: expected ..."
std::string reason_of(const toml::parse_error& error) {
  constexpr std::string_view kPreamble = "Error while parsing ";
  std::string_view text = error.description();
  if (text.substr(0, kPreamble.size()) == kPreamble) {
    text.remove_prefix(kPreamble.size());
  }
  return std::string(text);
}

}  // namespace

Node parse_toml(std::string_view text, const std::string& file) {
  try {
    return to_node(toml::parse(text, std::string_view(file)), file);
  } catch (const toml::parse_error& error) {
    throw SyntaxFault(to_position(error.source(), file), reason_of(error));
  }
}

Node parse_value(std::string_view text, const Position& at) {
  constexpr std::string_view kKey = "value";
  Node document;
  try {
    document = parse_toml(std::string(kKey) + " = " + std::string(text), "");
  } catch (const SyntaxFault& fault) {
    throw SyntaxFault(at, fault.what());
  }
  auto& members = std::get<Node::Table>(document.value);
  if (members.size() != 1 || members.front().key != kKey) {
    throw SyntaxFault(at, "expected one value");
  }
  move_to(members.front().node, at);
  return std::move(members.front().node);
}

}  // namespace limbeck
