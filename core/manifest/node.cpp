// SPDX-License-Identifier: Apache-2.0
#include "core/manifest/node.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/manifest/toml.hpp"

namespace limbeck {
namespace {

constexpr size_t kLongestText = 80;  // of a value in a message

std::optional<double> as_number(const Node& node) {
  if (const auto* integer = std::get_if<int64_t>(&node.value)) {
    return static_cast<double>(*integer);
  }
  if (const auto* number = std::get_if<double>(&node.value)) {
    return *number;
  }
  return std::nullopt;
}

bool is_same_list(const Node::List& a, const Node::List& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), is_same_value);
}

bool is_same_table(const Node& a, const Node& b) {
  return a.table()->size() == b.table()->size() &&
         std::all_of(a.table()->begin(), a.table()->end(), [&b](const Member& member) {
           const Node* other = b.find(member.key);
           return other != nullptr && is_same_value(member.node, *other);
         });
}

// A byte of UTF-8 that is not the first of its character.
bool is_inside_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80U; }

Node* child(Node& node, const std::string& name) {
  auto* list = std::get_if<Node::List>(&node.value);
  if (list == nullptr) {
    return node.find(name);
  }
  size_t index = 0;
  const char* end = name.data() + name.size();
  const auto read = std::from_chars(name.data(), end, index);
  const bool is_index = read.ec == std::errc() && read.ptr == end;
  return is_index && index < list->size() ? &(*list)[index] : nullptr;
}

}  // namespace

const Node* Node::find(std::string_view key) const {
  if (const Table* members = table()) {
    for (const auto& member : *members) {
      if (member.key == key) {
        return &member.node;
      }
    }
  }
  return nullptr;
}

Node* Node::find(std::string_view key) { return const_cast<Node*>(std::as_const(*this).find(key)); }

bool is_same_value(const Node& a, const Node& b) {
  const auto number_a = as_number(a);
  const auto number_b = as_number(b);
  if (number_a && number_b) {
    return *number_a == *number_b;
  }
  if (a.value.index() != b.value.index()) {
    return false;
  }
  if (a.list() != nullptr) {
    return is_same_list(*a.list(), *b.list());
  }
  if (a.table() != nullptr) {
    return is_same_table(a, b);
  }
  if (a.text() != nullptr) {
    return *a.text() == *b.text();
  }
  const auto* boolean = std::get_if<bool>(&a.value);
  return boolean != nullptr && *boolean == std::get<bool>(b.value);
}

const Member& member_of(const Node& table, std::string_view key) {
  for (const auto& member : *table.table()) {
    if (member.key == key) {
      return member;
    }
  }
  throw Error(Fault::kInternal, cat("no member \"", key, "\" in a table of the manifest"));
}

void set_member(Node& table, Member member) {
  for (auto& old : std::get<Node::Table>(table.value)) {
    if (old.key == member.key) {
      old = std::move(member);
      return;
    }
  }
  std::get<Node::Table>(table.value).push_back(std::move(member));
}

void remove_member(Node& table, std::string_view key) {
  std::erase_if(std::get<Node::Table>(table.value),
                [key](const Member& member) { return member.key == key; });
}

std::string describe(const Node& node) {
  struct Describe {
    std::string operator()(bool value) const { return value ? "true" : "false"; }
    std::string operator()(int64_t value) const { return cat("the integer ", value); }
    std::string operator()(double value) const { return cat("the number ", float_text(value)); }
    std::string operator()(const std::string& value) const {
      size_t shown = std::min(value.size(), kLongestText);
      while (shown < value.size() && is_inside_character(value[shown])) {
        --shown;
      }
      return cat("the text ", quoted(value.substr(0, shown)), shown < value.size() ? "..." : "");
    }
    std::string operator()(const Node::List&) const { return "a list"; }
    std::string operator()(const Node::Table&) const { return "a table"; }
    std::string operator()(Node::Moment) const { return "a date or time"; }
  };
  return std::visit(Describe{}, node.value);
}

std::vector<std::string> split_path(std::string_view path) {
  std::vector<std::string> names;
  for (;;) {
    const size_t dot = path.find('.');
    names.emplace_back(path.substr(0, dot));
    if (dot == std::string_view::npos) {
      return names;
    }
    path.remove_prefix(dot + 1);
  }
}

Node* find_path(Node& root, std::string_view path) {
  Node* node = &root;
  for (const auto& name : split_path(path)) {
    node = child(*node, name);
    if (node == nullptr) {
      return nullptr;
    }
  }
  return node;
}

Node* make_path(Node& root, std::string_view path, const Position& at, std::string& blocked) {
  Node* node = &root;
  std::string walked;
  for (const auto& name : split_path(path)) {
    Node* next = child(*node, name);
    if (next == nullptr) {
      auto* members = std::get_if<Node::Table>(&node->value);
      if (members == nullptr) {
        blocked = walked;
        return nullptr;
      }
      members->push_back({name, at, Node{Node::Table{}, at}});
      next = &members->back().node;
    }
    walked += (walked.empty() ? "" : ".") + name;
    node = next;
  }
  return node;
}

}  // namespace limbeck
