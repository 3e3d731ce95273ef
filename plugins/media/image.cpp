// SPDX-License-Identifier: Apache-2.0
#include "media/image.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace media {
namespace {

size_t place(const Image& image, int x, int y) {
  return 3 * (static_cast<size_t>(y) * static_cast<size_t>(image.width) + static_cast<size_t>(x));
}

}  // namespace

Image::Image(int w, int h, Rgb colour) : width(w), height(h) {
  if (w < 0 || h < 0) {
    throw std::invalid_argument("a picture of " + std::to_string(w) + " by " + std::to_string(h) +
                                " pixels");
  }
  const size_t pixels = static_cast<size_t>(w) * static_cast<size_t>(h);
  rgb.resize(3 * pixels);
  for (size_t i = 0; i < pixels; ++i) {
    rgb[3 * i] = colour.r;
    rgb[3 * i + 1] = colour.g;
    rgb[3 * i + 2] = colour.b;
  }
}

Rgb Image::at(int x, int y) const {
  const uint8_t* pixel = rgb.data() + place(*this, x, y);
  return {pixel[0], pixel[1], pixel[2]};
}

void Image::put(int x, int y, Rgb colour) {
  uint8_t* pixel = rgb.data() + place(*this, x, y);
  pixel[0] = colour.r;
  pixel[1] = colour.g;
  pixel[2] = colour.b;
}

uint8_t byte_of(float value) {
  if (std::isnan(value)) {
    return 0;
  }
  return static_cast<uint8_t>(std::lround(127.5F * (std::clamp(value, -1.0F, 1.0F) + 1.0F)));
}

Image from_planes(
    const float* values, int channels, int height, int width, int64_t channel_stride) {
  if (channels != 1 && channels != 3) {
    throw std::invalid_argument("pixels have " + std::to_string(channels) +
                                " channels; a picture can show 1 (grey) or 3 (RGB)");
  }
  Image image(width, height);
  const int64_t pixels = int64_t{width} * height;
  for (int64_t i = 0; i < pixels; ++i) {
    for (int c = 0; c < 3; ++c) {
      const int plane = channels == 1 ? 0 : c;
      image.rgb[static_cast<size_t>(3 * i + c)] = byte_of(values[plane * channel_stride + i]);
    }
  }
  return image;
}

Image enlarge(const Image& image, int factor) {
  if (factor < 1) {
    throw std::invalid_argument("a picture cannot be enlarged " + std::to_string(factor) +
                                " times");
  }
  if (factor == 1) {
    return image;
  }
  Image large(image.width * factor, image.height * factor);
  for (int y = 0; y < large.height; ++y) {
    for (int x = 0; x < large.width; ++x) {
      large.put(x, y, image.at(x / factor, y / factor));
    }
  }
  return large;
}

void paste(Image& onto, const Image& piece, int x, int y) {
  const int left = std::max(0, -x);
  const int right = std::min(piece.width, onto.width - x);
  if (left >= right) {
    return;
  }
  const int top = std::max(0, -y);
  const int bottom = std::min(piece.height, onto.height - y);
  for (int row = top; row < bottom; ++row) {
    const uint8_t* from = piece.rgb.data() + place(piece, left, row);
    std::copy(from, from + 3 * (right - left), onto.rgb.data() + place(onto, x + left, y + row));
  }
}

Image grid(const std::vector<Image>& tiles, int columns, int gap, Rgb lines) {
  if (tiles.empty() || columns < 1) {
    throw std::invalid_argument("a grid needs tiles and at least one column, got " +
                                std::to_string(tiles.size()) + " tiles, " +
                                std::to_string(columns) + " columns");
  }
  int width = 0;
  int height = 0;
  for (const Image& tile : tiles) {
    width = std::max(width, tile.width);
    height = std::max(height, tile.height);
  }
  const int count = static_cast<int>(tiles.size());
  columns = std::min(columns, count);
  const int rows = (count + columns - 1) / columns;
  Image sheet(gap + columns * (width + gap), gap + rows * (height + gap), lines);
  for (int i = 0; i < count; ++i) {
    paste(sheet, tiles[static_cast<size_t>(i)], gap + (i % columns) * (width + gap),
          gap + (i / columns) * (height + gap));
  }
  return sheet;
}

}  // namespace media
