// SPDX-License-Identifier: Apache-2.0
// Files: reading whole ones, and writing so that a reader never sees half of one.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/base/export.hpp"

namespace limbeck {

// The whole file. Throws Error(kData) naming path and reason.
LIMBECK_API std::string read_file(const std::filesystem::path& path);

// Writes to a temporary file beside `path`, flushes it to disk and renames it over `path`, whose
// folder is created if needed. On failure the old file is untouched, the temporary one is
// removed, and Error(kData) names path, operation and reason. [any]
LIMBECK_API void write_file(const std::filesystem::path& path, std::string_view content);

// Flushes the names in a folder to disk: only then does a file that was made or renamed there
// survive a loss of power. Not every file system can; that is no error. [any]
LIMBECK_API void flush_folder(const std::filesystem::path& folder);

}  // namespace limbeck
