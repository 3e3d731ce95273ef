// SPDX-License-Identifier: Apache-2.0
// A picture in memory and what is done with it before it is written: tiles, enlargement, and the
// step from a network's pixels to bytes.
#pragma once

#include <cstdint>
#include <vector>

namespace media {

struct Rgb {
  uint8_t r = 0, g = 0, b = 0;
  bool operator==(const Rgb&) const = default;
};

// Rows from top to bottom, pixels from left to right, three bytes each (sRGB).
struct Image {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> rgb;  // 3 * width * height

  Image() = default;
  Image(int w, int h, Rgb colour = {});  // of one colour

  Rgb at(int x, int y) const;          // inside the picture
  void put(int x, int y, Rgb colour);  // inside the picture
  bool operator==(const Image&) const = default;
};

// The byte of a pixel value of [-1, 1]: round(127.5 * (value + 1)). Values outside are clamped;
// nan is 0.
uint8_t byte_of(float value);

// A picture from planes [channels, height, width] of values of [-1, 1]. One channel becomes grey,
// three are red, green and blue; any other number throws std::invalid_argument.
// `channel_stride` is the number of values from one plane to the next.
Image from_planes(const float* values, int channels, int height, int width, int64_t channel_stride);

// Every pixel becomes a square of `factor` by `factor` (at least 1).
Image enlarge(const Image& image, int factor);

// Copies `piece` with its upper left corner to (x, y); what lies outside is cut off.
void paste(Image& onto, const Image& piece, int x, int y);

// Tiles from left to right, then down, with lines of `gap` pixels between and around them. Cells
// are as large as the largest tile; a smaller one lies in the upper left corner of its cell.
// Without tiles, or with columns < 1, std::invalid_argument.
Image grid(const std::vector<Image>& tiles, int columns, int gap = 1, Rgb lines = {96, 96, 96});

}  // namespace media
