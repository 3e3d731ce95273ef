// SPDX-License-Identifier: Apache-2.0
// Faults of a manifest, collected so that a person sees all of them at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/export.hpp"

namespace limbeck {

struct Position {
  std::string file;     // as the user wrote it; "--set" for the command line; empty: nowhere
  uint32_t line = 0;    // from 1; 0: unknown
  uint32_t column = 0;  // from 1; 0: unknown
};

LIMBECK_API std::string to_string(const Position& position);  // "x.toml:3:1"

class LIMBECK_API Diagnostics {
 public:
  struct Item {
    Position at;
    std::string message;  // what is wrong, got and expected
    std::string hint;     // what to do; may be empty
    bool is_error = true;
  };

  void error(Position at, std::string message, std::string hint = "");
  void warn(Position at, std::string message, std::string hint = "");
  void add(const Diagnostics& more);

  bool has_errors() const;
  bool has_error_at(const Position& at) const;
  // Sorted by file, line and column.
  std::vector<Item> items() const;
  // Throws Error(kManifest) with every error, one "file:line:column: message" line each and the
  // count at the end. Warnings are logged. Does nothing without errors.
  void throw_if_errors() const;

 private:
  std::vector<Item> items_;
};

}  // namespace limbeck
