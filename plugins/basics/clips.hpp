// SPDX-License-Identifier: Apache-2.0
// From decoded videos to pictures.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <limbeck/tensor.hpp>

#include "media/image.hpp"

namespace basics {

// The frames of one video, of equal size.
using Clip = std::vector<media::Image>;

// `pixels` [b, p, F, h, w] of values of [-1, 1] as b clips, each pixel `scale` by `scale` large.
// p is 1 (shown grey) or 3 (RGB).
std::vector<Clip> to_clips(const lb::Tensor& pixels, int scale);

// A still picture: every clip is a strip of at most `most_frames` frames, evenly spaced from the
// first to the last one; strips are placed in rows of `columns`.
media::Image contact_sheet(const std::vector<Clip>& clips, int columns, int most_frames = 8);

// One clip in which all clips run side by side, in rows of `columns`. As long as the longest.
Clip side_by_side(const std::vector<Clip>& clips, int columns);

// A part of a file name for `text`: lower-case letters and digits, everything else one underscore,
// at most 40 characters; "clip" for a text without any.
std::string file_stem(const std::string& text);

}  // namespace basics
