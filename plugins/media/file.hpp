// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <span>

namespace media {

// Writes a temporary file beside `path` and renames it over `path`, so that a reader sees the old
// file or the new one. Creates the folder. Throws std::runtime_error with path and reason, after
// removing the temporary file.
void replace_file(const std::filesystem::path& path, std::span<const unsigned char> content);

}  // namespace media
