// SPDX-License-Identifier: Apache-2.0
// The files of the repository, for tests that read them.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace limbeck::lint {

// The root of the repository.
std::filesystem::path root();

// Files below `folder` (relative to the root) with one of these extensions, sorted. Paths are
// relative to the root. A folder that does not exist has none.
std::vector<std::filesystem::path> files_in(const std::string& folder,
                                            const std::vector<std::string>& extensions);

// C and C++ sources and headers below a folder.
std::vector<std::filesystem::path> sources_in(const std::string& folder);

std::vector<std::string> lines_of(const std::filesystem::path& relative);

// What stands between quotes or angle brackets in an #include line, with these around it; empty:
// it is not such a line.
std::string included(std::string_view line);

// Standard output of a command; the test fails if it does not succeed.
std::string output_of(const std::string& command);

// "a\nb", for messages; empty when there is nothing.
std::string list(const std::vector<std::string>& faults);

}  // namespace limbeck::lint
