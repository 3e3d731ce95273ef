// SPDX-License-Identifier: Apache-2.0
// `--set key=value` over a parsed manifest.
#pragma once

#include <string>

#include "core/manifest/diagnostics.hpp"
#include "core/manifest/node.hpp"

namespace limbeck {

// The key is a path as messages write it ("training.loop.max_train_steps", "prepare[0].rate");
// tables that are missing are made. The value is TOML; what is not TOML and looks like no list,
// table or quoted text is a text. Faults are reported at "--set".
void apply_override(Node& root, const std::string& text, Diagnostics& diagnostics);

}  // namespace limbeck
