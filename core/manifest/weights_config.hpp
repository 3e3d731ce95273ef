// SPDX-License-Identifier: Apache-2.0
// The config.json beside a network's weights, as options of the network.
#pragma once

#include <filesystem>
#include <string_view>

#include "core/manifest/diagnostics.hpp"
#include "core/manifest/node.hpp"

namespace limbeck {

// A table of what <folder>/config.json says, or the one in the subfolder that a Diffusers folder
// keeps networks of this kind in ("transformer", "vae", "text_encoder"). Nulls are left out.
// Empty when there is no such file; a file that is not a JSON object is reported.
Node read_weights_config(const std::filesystem::path& folder,
                         std::string_view kind,
                         Diagnostics& diagnostics);

}  // namespace limbeck
