// SPDX-License-Identifier: Apache-2.0
#include "media/chart.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <stdexcept>

#include "media/font.hpp"

namespace media {
namespace {

constexpr Rgb kPaper = {255, 255, 255};
constexpr Rgb kInk = {64, 64, 64};
constexpr Rgb kRule = {230, 230, 230};
constexpr Rgb kPale = {160, 196, 232};
constexpr Rgb kStrong = {24, 90, 168};

constexpr int kTextScale = 2;

const Glyph& glyph_of(char character) {
  const auto* end = std::end(kGlyphs);
  const auto* found =
      std::lower_bound(std::begin(kGlyphs), end, character,
                       [](const Glyph& glyph, char wanted) { return glyph.character < wanted; });
  return found != end && found->character == character ? *found : kBox;
}

uint8_t mix(uint8_t under, uint8_t over, float share) {
  return static_cast<uint8_t>(
      std::lround(static_cast<float>(under) * (1.0F - share) + static_cast<float>(over) * share));
}

struct Box {
  int left, top, right, bottom;  // the last pixels that belong to it
};

// The range shown on one axis and the pixels it is shown on.
struct Axis {
  double low, high;
  double first, last;  // pixels of low and high

  double place(double value) const { return first + (value - low) / (high - low) * (last - first); }
};

// How much of each pixel a polyline covers. Collected before anything is drawn, so that the ends
// of its segments do not show as darker dots.
class Coverage {
 public:
  Coverage(const Box& box, double line_width)
      : box_(box),
        columns_(box.right - box.left + 1),
        half_(line_width / 2),
        share_(static_cast<size_t>(columns_) * static_cast<size_t>(box.bottom - box.top + 1)) {}

  void segment(double x0, double y0, double x1, double y1) {
    const double reach = half_ + 1.0;
    const int left = bound(std::min(x0, x1) - reach, box_.left, box_.right);
    const int right = bound(std::max(x0, x1) + reach, box_.left, box_.right);
    const int top = bound(std::min(y0, y1) - reach, box_.top, box_.bottom);
    const int bottom = bound(std::max(y0, y1) + reach, box_.top, box_.bottom);
    const double dx = x1 - x0;
    const double dy = y1 - y0;
    const double squared = dx * dx + dy * dy;
    for (int y = top; y <= bottom; ++y) {
      for (int x = left; x <= right; ++x) {
        const double along =
            squared == 0.0 ? 0.0 : std::clamp(((x - x0) * dx + (y - y0) * dy) / squared, 0.0, 1.0);
        const double away = std::hypot(x - x0 - along * dx, y - y0 - along * dy);
        const auto share = static_cast<float>(std::clamp(half_ + 0.5 - away, 0.0, 1.0));
        float& pixel = share_[static_cast<size_t>(y - box_.top) * static_cast<size_t>(columns_) +
                              static_cast<size_t>(x - box_.left)];
        pixel = std::max(pixel, share);
      }
    }
  }

  void draw(Image& image, Rgb colour) const {
    for (size_t i = 0; i < share_.size(); ++i) {
      if (share_[i] > 0.0F) {
        const int x = box_.left + static_cast<int>(i) % columns_;
        const int y = box_.top + static_cast<int>(i) / columns_;
        const Rgb under = image.at(x, y);
        image.put(x, y,
                  {mix(under.r, colour.r, share_[i]), mix(under.g, colour.g, share_[i]),
                   mix(under.b, colour.b, share_[i])});
      }
    }
  }

 private:
  static int bound(double value, int low, int high) {
    return static_cast<int>(std::lround(std::clamp(value, double(low), double(high))));
  }

  Box box_;
  int columns_;
  double half_;
  std::vector<float> share_;
};

void draw_polyline(Image& image,
                   const Box& box,
                   const Axis& horizontal,
                   const Axis& vertical,
                   const std::vector<double>& x,
                   const std::vector<double>& y,
                   double line_width,
                   Rgb colour) {
  Coverage coverage(box, line_width);
  // Far outside the plot nothing is visible; without the limit an outlier costs its whole way.
  const double above = 2.0 * vertical.last - vertical.first;
  const double below = 2.0 * vertical.first - vertical.last;
  bool has_last = false;
  double last_x = 0.0;
  double last_y = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(x[i]) || !std::isfinite(y[i])) {
      has_last = false;
      continue;
    }
    const double px = horizontal.place(x[i]);
    const double py = std::clamp(vertical.place(y[i]), above, below);
    if (has_last) {
      coverage.segment(last_x, last_y, px, py);
    } else {
      coverage.segment(px, py, px, py);
    }
    has_last = true;
    last_x = px;
    last_y = py;
  }
  coverage.draw(image, colour);
}

void fill(Image& image, const Box& box, Rgb colour) {
  for (int y = std::max(0, box.top); y <= std::min(image.height - 1, box.bottom); ++y) {
    for (int x = std::max(0, box.left); x <= std::min(image.width - 1, box.right); ++x) {
      image.put(x, y, colour);
    }
  }
}

// The shortest text that tells ticks apart which are `step` apart.
std::string label_of(double value, double step) {
  char text[32];
  const double size = std::max(std::abs(value), step);
  if (size >= 1e6 || step < 1e-5) {
    std::snprintf(text, sizeof text, "%.3g", value);
  } else {
    const int decimals = std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
    std::snprintf(text, sizeof text, "%.*f", decimals, value);
  }
  return text;
}

std::vector<std::string> labels_of(const std::vector<double>& values) {
  const double step = values.size() > 1 ? values[1] - values[0] : 1.0;
  std::vector<std::string> labels;
  for (const double value : values) {
    labels.push_back(label_of(value, step));
  }
  return labels;
}

// Widens a range of zero length.
void open_up(double& low, double& high) {
  if (!(low < high)) {
    const double room = low == 0.0 ? 1.0 : std::abs(low) * 0.5;
    low -= room;
    high += room;
  }
}

}  // namespace

std::vector<double> smooth(const std::vector<double>& y, double weight) {
  std::vector<double> result;
  result.reserve(y.size());
  double sum = 0.0;
  double past = 1.0;  // weight^n
  for (const double value : y) {
    if (std::isfinite(value)) {
      sum = weight * sum + (1.0 - weight) * value;
      past *= weight;
    }
    result.push_back(past < 1.0 ? sum / (1.0 - past) : std::numeric_limits<double>::quiet_NaN());
  }
  return result;
}

std::vector<double> ticks(double low, double high, int most) {
  if (!(low < high) || !std::isfinite(low) || !std::isfinite(high) || most < 1) {
    return {};
  }
  double decade = std::pow(10.0, std::floor(std::log10((high - low) / most)));
  for (;; decade *= 10.0) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double step = decade * factor;
      // A hair of room, so that 0.3 = 3 * 0.1 is found at the end of a range.
      const double first = std::ceil(low / step - 1e-9);
      const double last = std::floor(high / step + 1e-9);
      if (last - first + 1.0 <= most) {
        std::vector<double> values;
        const auto count = static_cast<int>(last - first) + 1;
        for (int i = 0; i < count; ++i) {
          values.push_back((first + i) * step + 0.0);  // + 0.0: no "-0"
        }
        return values;
      }
    }
  }
}

int text_width(size_t length, int scale) {
  return length == 0 ? 0 : (static_cast<int>(length) * (kGlyphWidth + 1) - 1) * scale;
}

void draw_text(Image& image, int x, int y, const std::string& text, Rgb colour, int scale) {
  for (const char character : text) {
    const Glyph& glyph = glyph_of(character);
    for (int row = 0; row < kGlyphHeight; ++row) {
      for (int column = 0; column < kGlyphWidth; ++column) {
        if ((glyph.rows[static_cast<size_t>(row)] >> (kGlyphWidth - 1 - column) & 1) != 0) {
          fill(image,
               {x + column * scale, y + row * scale, x + (column + 1) * scale - 1,
                y + (row + 1) * scale - 1},
               colour);
        }
      }
    }
    x += (kGlyphWidth + 1) * scale;
  }
}

Image draw_curve(const std::vector<double>& x, const std::vector<double>& y, const Chart& chart) {
  if (x.size() != y.size()) {
    throw std::invalid_argument("a curve with " + std::to_string(x.size()) + " places and " +
                                std::to_string(y.size()) + " values");
  }
  if (chart.width < 200 || chart.height < 150 || chart.smoothing < 0.0 || chart.smoothing >= 1.0) {
    throw std::invalid_argument("a chart of " + std::to_string(chart.width) + " by " +
                                std::to_string(chart.height) + " pixels with smoothing " +
                                std::to_string(chart.smoothing));
  }
  const bool is_smoothed = chart.smoothing > 0.0;
  const std::vector<double> smoothed = smooth(y, chart.smoothing);

  std::vector<double> values;
  double x_low = std::numeric_limits<double>::infinity();
  double x_high = -x_low;
  double y_low = x_low;
  double y_high = x_high;
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isfinite(x[i]) && std::isfinite(y[i])) {
      values.push_back(y[i]);
      x_low = std::min(x_low, x[i]);
      x_high = std::max(x_high, x[i]);
      if (is_smoothed) {
        y_low = std::min(y_low, smoothed[i]);
        y_high = std::max(y_high, smoothed[i]);
      }
    }
  }
  if (values.empty()) {
    x_low = y_low = 0.0;
    x_high = y_high = 1.0;
  } else {
    std::sort(values.begin(), values.end());
    const size_t cut = values.size() / 100;
    y_low = std::min(y_low, values[cut]);
    y_high = std::max(y_high, values[values.size() - 1 - cut]);
  }
  open_up(x_low, x_high);
  open_up(y_low, y_high);
  const double room = 0.04 * (y_high - y_low);
  y_low -= room;
  y_high += room;

  constexpr int kLine = kGlyphHeight * kTextScale;
  constexpr int kGap = 8;
  const std::vector<double> y_ticks = ticks(y_low, y_high, std::max(3, chart.height / 60));
  const std::vector<std::string> y_labels = labels_of(y_ticks);
  size_t widest = 0;
  for (const std::string& label : y_labels) {
    widest = std::max(widest, label.size());
  }
  Box box{};
  box.left = 2 * kGap + text_width(widest, kTextScale);
  box.right = chart.width - 1 - 3 * kGap;
  box.top = chart.title.empty() ? 2 * kGap : 3 * kGap + kLine;
  box.bottom = chart.height - 1 - 2 * kGap - kLine;
  if (!chart.x_label.empty()) {
    box.bottom -= kGap + kLine;
  }
  const Axis horizontal = {x_low, x_high, double(box.left), double(box.right)};
  const Axis vertical = {y_low, y_high, double(box.bottom), double(box.top)};
  const std::vector<double> x_ticks = ticks(x_low, x_high, std::max(2, chart.width / 100));
  const std::vector<std::string> x_labels = labels_of(x_ticks);

  Image image(chart.width, chart.height, kPaper);
  const auto centred = [](size_t length, int middle) {
    return middle - text_width(length, kTextScale) / 2;
  };
  for (size_t i = 0; i < y_ticks.size(); ++i) {
    const int row = static_cast<int>(std::lround(vertical.place(y_ticks[i])));
    fill(image, {box.left, row, box.right, row}, kRule);
    draw_text(image, box.left - kGap - text_width(y_labels[i].size(), kTextScale), row - kLine / 2,
              y_labels[i], kInk, kTextScale);
  }
  for (size_t i = 0; i < x_ticks.size(); ++i) {
    const int column = static_cast<int>(std::lround(horizontal.place(x_ticks[i])));
    fill(image, {column, box.bottom, column, box.bottom + 4}, kInk);
    draw_text(image, centred(x_labels[i].size(), column), box.bottom + kGap, x_labels[i], kInk,
              kTextScale);
  }
  draw_polyline(image, box, horizontal, vertical, x, y, 1.0, is_smoothed ? kPale : kStrong);
  if (is_smoothed) {
    draw_polyline(image, box, horizontal, vertical, x, smoothed, 2.0, kStrong);
  }
  fill(image, {box.left, box.bottom, box.right, box.bottom}, kInk);
  fill(image, {box.left, box.top, box.left, box.bottom}, kInk);
  draw_text(image, box.left, kGap + kGap / 2, chart.title, kInk, kTextScale);
  draw_text(image, centred(chart.x_label.size(), (box.left + box.right) / 2),
            chart.height - kGap - kLine, chart.x_label, kInk, kTextScale);
  return image;
}

}  // namespace media
