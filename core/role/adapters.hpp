// SPDX-License-Identifier: Apache-2.0
// Low-rank adapters in a role's layout, and between its memory and PEFT's folders.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/manifest/manifest.hpp"
#include "core/role/layout.hpp"

namespace limbeck {

class Role;
enum class Weights;

// Adds A and B for every linear layer that is selected, as parameters of the layer's unit behind
// the declared ones. `targets`: the layers of a fresh adapter whose manifest names none; empty: all
// linear layers. Sets UnitLayout::declared, with or without adapters. Throws Error(kData) when
// folders are not as many as parts, and when no layer is selected.
void add_adapters(RoleLayout& layout, RoleSpec& spec, const std::vector<std::string>& targets);

// Writes the adapters of each part: `folder` for one part, else <folder>/<part>. Returns what was
// written. Throws Error(kData). [control]
std::vector<std::filesystem::path> write_adapters(const Role& role,
                                                  Weights weights,
                                                  const std::filesystem::path& folder);

// Fills the adapters of part `part` from a folder. Every layer that is adapted must be there, and
// nothing else. Throws Error(kData). [control]
void read_adapters(Role& role, size_t part, const std::filesystem::path& folder);

}  // namespace limbeck
