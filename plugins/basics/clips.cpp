// SPDX-License-Identifier: Apache-2.0
#include "basics/clips.hpp"

#include <algorithm>

namespace basics {
namespace {

constexpr int kFrameGap = 1;
constexpr int kClipGap = 3;

}  // namespace

std::vector<Clip> to_clips(const lb::Tensor& pixels, int scale) {
  if (pixels.dim() != 5) {
    throw lb::Error(LB_INVALID_ARGUMENT, "'pixels' has shape " + pixels.shape() +
                                             "; expected [videos, channels, frames, height, "
                                             "width]");
  }
  const std::vector<int64_t> sizes = pixels.sizes();
  const std::vector<float> values = pixels.to_vector<float>();
  const int64_t plane = sizes[3] * sizes[4];
  std::vector<Clip> clips;
  for (int64_t b = 0; b < sizes[0]; ++b) {
    Clip clip;
    for (int64_t f = 0; f < sizes[2]; ++f) {
      const float* first = values.data() + (b * sizes[1] * sizes[2] + f) * plane;
      clip.push_back(media::enlarge(
          media::from_planes(first, static_cast<int>(sizes[1]), static_cast<int>(sizes[3]),
                             static_cast<int>(sizes[4]), sizes[2] * plane),
          scale));
    }
    clips.push_back(std::move(clip));
  }
  return clips;
}

media::Image contact_sheet(const std::vector<Clip>& clips, int columns, int most_frames) {
  std::vector<media::Image> strips;
  for (const Clip& clip : clips) {
    const int frames = static_cast<int>(clip.size());
    const int shown = std::min(frames, most_frames);
    std::vector<media::Image> tiles;
    for (int i = 0; i < shown; ++i) {
      const int frame = shown == 1 ? 0 : (i * (frames - 1) + (shown - 1) / 2) / (shown - 1);
      tiles.push_back(clip[static_cast<size_t>(frame)]);
    }
    strips.push_back(media::grid(tiles, shown, kFrameGap));
  }
  return media::grid(strips, columns, kClipGap);
}

Clip side_by_side(const std::vector<Clip>& clips, int columns) {
  size_t frames = 0;
  for (const Clip& clip : clips) {
    frames = std::max(frames, clip.size());
  }
  Clip result;
  for (size_t f = 0; f < frames; ++f) {
    std::vector<media::Image> tiles;
    for (const Clip& clip : clips) {
      tiles.push_back(clip[std::min(f, clip.size() - 1)]);  // a shorter one stays at its end
    }
    result.push_back(media::grid(tiles, columns, kClipGap));
  }
  return result;
}

std::string file_stem(const std::string& text) {
  constexpr size_t kLongest = 40;
  std::string stem;
  for (const char character : text) {
    const bool is_letter = (character >= 'a' && character <= 'z') ||
                           (character >= 'A' && character <= 'Z') ||
                           (character >= '0' && character <= '9');
    if (is_letter) {
      const bool is_upper = character >= 'A' && character <= 'Z';
      stem += static_cast<char>(is_upper ? character - 'A' + 'a' : character);
    } else if (!stem.empty() && stem.back() != '_') {
      stem += '_';
    }
    if (stem.size() == kLongest) {
      break;
    }
  }
  while (!stem.empty() && stem.back() == '_') {
    stem.pop_back();
  }
  return stem.empty() ? "clip" : stem;
}

}  // namespace basics
