// SPDX-License-Identifier: Apache-2.0
// Between TOML text and Node trees. The parser library is seen by toml_parse.cpp alone.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "core/base/export.hpp"
#include "core/manifest/diagnostics.hpp"
#include "core/manifest/node.hpp"

namespace limbeck {

// Text that is not TOML; what() says why.
struct SyntaxFault : std::runtime_error {
  SyntaxFault(Position where, const std::string& why)
      : std::runtime_error(why), at(std::move(where)) {}
  Position at;
};

// A whole document. `file` goes into positions. Throws SyntaxFault.
Node parse_toml(std::string_view text, const std::string& file);

// One value, such as `[0.9, 0.999]`; every position in it becomes `at`. Throws SyntaxFault.
Node parse_value(std::string_view text, const Position& at);

// A document with a header for every table; tables inside lists are written inline, except lists
// of tables only, which get [[headers]]. Reads back to the same values.
std::string to_toml(const Node& root);

// The same with a comment behind every value: the place where it was written, or "default".
std::string to_explained_toml(const Node& root);

// One value on one line, as a document would have it.
std::string value_text(const Node& node);

// In quotes, with escapes for what TOML does not allow between them.
LIMBECK_API std::string quoted(const std::string& text);

// A double as TOML tells it from an integer: "1.0", "1e-08", "inf".
std::string float_text(double value);

}  // namespace limbeck
