// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "media/image.hpp"

namespace media {

// Writes 8-bit sRGB, or 8-bit grey if all pixels are grey. The file appears complete or not at
// all. Throws std::runtime_error with path and reason.
void write_png(const std::filesystem::path& path, const Image& image);

// Any PNG as 8-bit RGB; transparency is shown on black. Throws std::runtime_error with path and
// reason.
Image read_png(const std::filesystem::path& path);

}  // namespace media
