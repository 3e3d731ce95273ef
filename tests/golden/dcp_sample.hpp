// SPDX-License-Identifier: Apache-2.0
// A small checkpoint with the names and the kinds of entries that a training has, whose numbers are
// known by formulas: for tests of the format, and for PyTorch to read.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace limbeck::testing {

// As `ranks` ranks write it, each its flat range of every tensor, into an existing empty folder.
void write_dcp_sample(const std::filesystem::path& folder, int ranks);

// What differs from the sample in a checkpoint that anybody wrote in any cut; empty if nothing
// does. Further entries do not matter.
std::vector<std::string> differences_from_dcp_sample(const std::filesystem::path& folder);

}  // namespace limbeck::testing
