// SPDX-License-Identifier: Apache-2.0
// Writing the weights of trained roles where other programs can read them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "core/role/role_set.hpp"

namespace limbeck {

// The class that other programs know the network by, and its options as they read them: what
// config.json holds.
nlohmann::ordered_json export_config(const Role& role);
// The folder of a network's first part within a pipeline: "transformer"; "" if it has none.
std::string export_folder(const Role& role);

// For every trained role <output_dir>/export/<role>, and <role>-ema if it has averaged weights:
// config.json and safetensors in the Diffusers layout of the network, in the folder that the
// network's fact "export.folder" names, read back and compared bit by bit. Of a role with adapters
// only these, as PEFT writes them. Returns the folders.
// Throws Error(kData). [control]
std::vector<std::filesystem::path> export_roles(const RoleSet& roles,
                                                const std::filesystem::path& output_dir);

}  // namespace limbeck
