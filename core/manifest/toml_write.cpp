// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdio>

#include "core/base/text.hpp"
#include "core/manifest/toml.hpp"

namespace limbeck {
namespace {

std::string key_text(const std::string& key) {
  const bool is_bare = !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
  return is_bare ? key : quoted(key);
}

struct InlineText {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return cat(value); }
  std::string operator()(double value) const { return float_text(value); }
  std::string operator()(const std::string& value) const { return quoted(value); }
  std::string operator()(const Node::List& value) const {
    std::vector<std::string> items;
    for (const auto& item : value) {
      items.push_back(std::visit(*this, item.value));
    }
    return "[" + join(items) + "]";
  }
  std::string operator()(const Node::Table& value) const {
    std::vector<std::string> items;
    for (const auto& member : value) {
      items.push_back(key_text(member.key) + " = " + std::visit(*this, member.node.value));
    }
    return items.empty() ? "{}" : "{ " + join(items) + " }";
  }
  std::string operator()(Node::Moment) const { return "\"\""; }
};

bool is_table(const Node& node) { return node.table() != nullptr; }

bool is_list_of_tables(const Node& node) {
  const auto* list = node.list();
  return list != nullptr && !list->empty() && std::all_of(list->begin(), list->end(), is_table);
}

// Its own header says nothing that theirs do not.
bool has_only_tables(const Node& node) {
  const auto& members = *node.table();
  return !members.empty() && std::all_of(members.begin(), members.end(), [](const Member& member) {
    return is_table(member.node);
  });
}

}  // namespace

std::string value_text(const Node& node) { return std::visit(InlineText{}, node.value); }

namespace {

// Values come before the headers of inner tables: after a header, TOML has no way back.
struct Writer {
  bool has_origins;
  std::string out;

  void write(const Node::Table& members, const std::string& path) {
    for (const auto& member : members) {
      if (!is_table(member.node) && !is_list_of_tables(member.node)) {
        out += key_text(member.key) + " = " + value_text(member.node) + origin(member.node) + "\n";
      }
    }
    for (const auto& member : members) {
      const std::string inner = path + (path.empty() ? "" : ".") + key_text(member.key);
      if (is_table(member.node)) {
        out += has_only_tables(member.node) ? "" : "\n[" + inner + "]\n";
        write(*member.node.table(), inner);
      } else if (is_list_of_tables(member.node)) {
        for (const auto& item : *member.node.list()) {
          out += "\n[[" + inner + "]]\n";
          write(*item.table(), inner);
        }
      }
    }
  }

 private:
  // A file's name may hold anything, a comment must end with its line.
  std::string origin(const Node& node) const {
    if (!has_origins) {
      return "";
    }
    std::string place = to_string(node.at);
    std::replace_if(
        place.begin(), place.end(),
        [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
    return "  # " + (place.empty() ? "default" : place);
  }
};

}  // namespace

std::string to_toml(const Node& root) {
  Writer writer{false, ""};
  writer.write(*root.table(), "");
  return writer.out;
}

std::string to_explained_toml(const Node& root) {
  Writer writer{true, ""};
  writer.write(*root.table(), "");
  return writer.out;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04X", static_cast<unsigned>(byte));
      out += escape.data();
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string float_text(double value) {
  std::string text = shortest(value);
  const bool looks_like_integer = text.find_first_not_of("-0123456789") == std::string::npos;
  return looks_like_integer ? text + ".0" : text;
}

}  // namespace limbeck
