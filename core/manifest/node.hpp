// SPDX-License-Identifier: Apache-2.0
// A manifest as a tree of untyped values with the places they stand at: what TOML text, --set and
// config.json become before they are checked. Tables keep the order of the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/manifest/diagnostics.hpp"

namespace limbeck {

struct Member;

struct Node {
  using List = std::vector<Node>;
  using Table = std::vector<Member>;
  struct Moment {};  // a TOML date or time; nothing in a manifest takes one

  std::variant<bool, int64_t, double, std::string, List, Table, Moment> value;
  Position at;  // of a table: its header

  // nullptr: not a table, or no such key.
  const Node* find(std::string_view key) const;
  Node* find(std::string_view key);
  const Table* table() const { return std::get_if<Table>(&value); }
  const List* list() const { return std::get_if<List>(&value); }
  const std::string* text() const { return std::get_if<std::string>(&value); }
};

struct Member {
  std::string key;
  Position key_at;
  Node node;
};

// Equal values; places do not count, and 1 equals 1.0.
bool is_same_value(const Node& a, const Node& b);

// The member of a table, which must exist.
const Member& member_of(const Node& table, std::string_view key);

// Sets a member of `table`, in place if there is one.
void set_member(Node& table, Member member);
void remove_member(Node& table, std::string_view key);

// For messages: `the text "abc"`, `the number 0.5`, `a list`.
std::string describe(const Node& node);

// Follows a dotted path from `root`, also into lists ("prepare.0"). nullptr: it ends nowhere.
Node* find_path(Node& root, std::string_view path);
// The same, making the tables that are missing. `at` is their place. On a value that has no
// members, returns nullptr and sets `blocked` to the path of that value.
Node* make_path(Node& root, std::string_view path, const Position& at, std::string& blocked);
std::vector<std::string> split_path(std::string_view path);

}  // namespace limbeck
