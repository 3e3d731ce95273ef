// SPDX-License-Identifier: Apache-2.0
// Logging. This header has no formatting library in it, so that files which include libtorch
// (which bundles another version of fmt) can use it; text is put together with cat().
#pragma once

#include <cstdint>
#include <string_view>

#include "core/base/export.hpp"

namespace limbeck::log {

enum class Level { kTrace, kDebug, kInfo, kWarn, kError };

// Once, by the host. `level` is the least that is shown. Before setup() the level is kInfo. [any]
LIMBECK_API void setup(Level level);
LIMBECK_API bool enabled(Level level);  // [any]

// One line on standard error: time, level, component ("train", "plugin.x"), text. [any]
LIMBECK_API void write(Level level, std::string_view component, std::string_view text);

inline void debug(std::string_view component, std::string_view text) {
  write(Level::kDebug, component, text);
}
inline void info(std::string_view component, std::string_view text) {
  write(Level::kInfo, component, text);
}
inline void warn(std::string_view component, std::string_view text) {
  write(Level::kWarn, component, text);
}
inline void error(std::string_view component, std::string_view text) {
  write(Level::kError, component, text);
}

// A line that stays at the bottom of a terminal and is redrawn in place: progress. Empty text
// removes it. Where standard error is not a terminal, nothing is written. [any]
LIMBECK_API void status_line(std::string_view text);
LIMBECK_API bool is_terminal();

}  // namespace limbeck::log
