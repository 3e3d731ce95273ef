// SPDX-License-Identifier: Apache-2.0
// What changed between two resolved manifests.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/export.hpp"

namespace limbeck {

// A line for every key whose value is another, sorted: "training.loop.max_train_steps: 100 -> 200",
// "callbacks.x.y: removed, was 3". Lists are one value, except lists of tables. The places where a
// run writes and what it resumes from do not count. Throws Error(kManifest) for text that is not
// TOML.
LIMBECK_API std::vector<std::string> manifest_differences(std::string_view before,
                                                          std::string_view after);

}  // namespace limbeck
