// SPDX-License-Identifier: Apache-2.0
// Texts of a plugin's tables, which may have no end, or hold anything.
#pragma once

#include <cstring>
#include <string>
#include <string_view>

namespace limbeck {

inline constexpr size_t kMaxName = 128;        // ids, versions, names, capabilities
inline constexpr size_t kMaxText = 64 * 1024;  // docs, defaults

// The text, read no further than one byte over `most`: what is longer is not looked at.
inline std::string_view bounded(const char* text, size_t most) {
  return {text, strnlen(text, most + 1)};
}

inline bool is_empty(const char* text) { return text == nullptr || *text == '\0'; }

// For messages: "NULL", or the text without control characters, shortened if it is long.
inline std::string shown(const char* text) {
  if (text == nullptr) {
    return "NULL";
  }
  constexpr size_t kShown = 80;
  std::string copy(bounded(text, kShown));
  for (char& c : copy) {
    const auto code = static_cast<unsigned char>(c);
    c = code < 0x20 || code == 0x7f ? '?' : c;
  }
  return copy.size() > kShown ? copy.substr(0, kShown) + "..." : copy;
}

// The same in quotes.
inline std::string in_quotes(const char* text) {
  return text == nullptr ? "NULL" : "'" + shown(text) + "'";
}

}  // namespace limbeck
