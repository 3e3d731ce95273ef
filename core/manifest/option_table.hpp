// SPDX-License-Identifier: Apache-2.0
// Tables of options (lb_option), of plugins and of the core itself: what they expect, in words.
// Whether a plugin's table is sound was checked when the plugin was loaded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <limbeck/abi.h>

namespace limbeck {

// Flags that only the core's own tables use.
inline constexpr uint32_t kOptional = 1U << 31U;     // may be absent, and then has no value
inline constexpr uint32_t kUnavailable = 1U << 30U;  // a known key whose feature is not built
inline constexpr uint32_t kElsewhere = 1U << 29U;  // tables that are checked on their own: no value
inline constexpr uint32_t kFixed = 1U << 28U;      // in this version only its default is available
inline constexpr uint32_t kYields = 1U << 27U;     // a component may have an option of this name,
                                                   // which then takes the key's place
// A key that components take by lb_option.alias, and that has no effect unless one in use does.
inline constexpr uint32_t kForwarded = 1U << 26U;

struct Range {
  double low;
  double high;
  bool is_low_open;
  bool is_high_open;

  bool contains(double value) const;
};

// "(0, 1]", "[1, inf)", "(-inf, inf)". Empty: not an interval.
std::optional<Range> parse_range(std::string_view text);

// "an integer in [1, inf)", "a list of numbers", `"a", "b" or "c"`.
std::string expectation(const lb_option& option);

std::vector<std::string> names_of(const std::vector<lb_option>& options);
// Less those that are unavailable or yield: a component may use such a name for an option of its
// own.
std::vector<std::string> taken_names(const std::vector<lb_option>& options);
std::vector<std::string> choices_of(const lb_option& option);
const lb_option* find_option(const std::vector<lb_option>& options, std::string_view name);

// The first line of an option's documentation, or "".
std::string summary(const lb_option& option);

}  // namespace limbeck
