// SPDX-License-Identifier: Apache-2.0
// A line chart as a picture, drawn without any library.
#pragma once

#include <string>
#include <vector>

#include "media/image.hpp"

namespace media {

struct Chart {
  std::string title;
  std::string x_label;
  // Weight of the past in the smoothed curve, [0, 1). 0: no smoothed curve.
  double smoothing = 0.95;
  int width = 800;   // pixels, at least 200
  int height = 450;  // pixels, at least 150
};

// y over x: the raw curve pale, the smoothed one strong. Points that are not finite leave a gap.
// The vertical range holds the smoothed curve and all raw values but the outermost percent on
// each side, so that one outlier does not flatten the curve. Text: letters, digits and
// " .,:;-+=/%_()[]#*"; other characters are drawn as a box.
// Throws std::invalid_argument when x and y differ in length or a number above is out of range.
Image draw_curve(const std::vector<double>& x,
                 const std::vector<double>& y,
                 const Chart& chart = {});

// s_k = (1 - w) * sum_j w^(k - j) y_j / (1 - w^n_k), over the n_k finite values up to k: the
// exponential average without its bias towards zero at the start. Where y is not finite, s stays.
// Before the first finite value it is nan.
std::vector<double> smooth(const std::vector<double>& y, double weight);

// Round numbers (1, 2 or 5 times a power of ten apart) within [low, high], at most `most` of them
// and at least two where low < high and most > 2.
std::vector<double> ticks(double low, double high, int most);

// The pixels' width of a text of `length` characters.
int text_width(size_t length, int scale = 1);

// Writes `text` with its upper left corner at (x, y). A character is 5 by 7 pixels times `scale`.
void draw_text(Image& image, int x, int y, const std::string& text, Rgb colour, int scale = 1);

}  // namespace media
