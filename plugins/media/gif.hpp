// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <vector>

#include "media/image.hpp"

namespace media {

// Writes an animation that repeats for ever. All frames share one palette: the exact colours if
// there are at most 256 (always so for grey frames), else the nearest of 256 found by median cut.
// Shown `fps` frames a second, as near as hundredths of a second allow; viewers take no more than
// 50. Frames are of equal size, at least one. The file appears complete or not at all.
// Throws std::runtime_error with path and reason.
void write_gif(const std::filesystem::path& path, const std::vector<Image>& frames, double fps);

struct Animation {
  std::vector<Image> frames;
  std::vector<int> delays;  // hundredths of a second, one for each frame
  bool repeats = false;     // for ever
};

// An animation whose frames are all of full size, as write_gif() makes them. Throws
// std::runtime_error with path and reason.
Animation read_gif(const std::filesystem::path& path);

}  // namespace media
