// SPDX-License-Identifier: Apache-2.0
// The config.json beside a network's weights, as options of the network.
#pragma once

#include <filesystem>
#include <optional>
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

// What the scheduler of a Diffusers folder, which `folder` is or lies in, says of the shift that
// its network was trained with.
struct SavedShift {
  std::filesystem::path file;
  double value = 0;
};
std::optional<SavedShift> read_saved_shift(const std::filesystem::path& folder);

}  // namespace limbeck
