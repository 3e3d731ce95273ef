// SPDX-License-Identifier: Apache-2.0
// JSON from files of unknown origin.
#pragma once

#include <filesystem>
#include <string_view>

#include <nlohmann/json.hpp>

#include "core/base/export.hpp"

namespace limbeck {

// Throws Error(kData) that names `path`, if `text` is not valid JSON or an object has one name
// twice, of which nlohmann::json alone would keep the last. `part` says what the text is: "its
// header".
LIMBECK_API nlohmann::json parse_strict(std::string_view text,
                                        const std::filesystem::path& path,
                                        std::string_view part);

}  // namespace limbeck
