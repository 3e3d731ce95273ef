// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>

namespace limbeck {

// Media of a run stay in its folder `home`: a file that a component made elsewhere is moved to
// <home>/media/step_<step>/. Returns where the file is. What cannot be moved stays, with a
// warning. [control]
std::filesystem::path keep_media(const std::filesystem::path& file,
                                 const std::filesystem::path& home,
                                 int64_t step);

}  // namespace limbeck
