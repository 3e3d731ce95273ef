// SPDX-License-Identifier: Apache-2.0
#include "quickstart/digits.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>

#include <limbeck/error.hpp>

namespace quickstart {
namespace {

// Reads fields of one line, left to right.
class Line {
 public:
  Line(std::string_view text, const std::string& source, int64_t number)
      : rest_(text), source_(source), number_(number) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw lb::Error(LB_DATA_LOSS, source_ + ":" + std::to_string(number_) + ": " + what);
  }

  int take(int highest, int field) {
    const auto comma = rest_.find(',');
    const auto word = rest_.substr(0, comma);
    int value = -1;
    const auto [end, fault] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (fault != std::errc() || end != word.data() + word.size() || value < 0 || value > highest) {
      fail("field " + std::to_string(field) + " is '" + std::string(word) +
           "', not an integer from 0 to " + std::to_string(highest));
    }
    is_done_ = comma == std::string_view::npos;
    rest_.remove_prefix(is_done_ ? rest_.size() : comma + 1);
    return value;
  }

  bool is_done() const { return is_done_; }

 private:
  std::string_view rest_;
  const std::string& source_;
  int64_t number_;
  bool is_done_ = false;
};

Digit parse_line(Line line) {
  const auto expect_more = [&line](int fields) {
    if (line.is_done()) {
      line.fail("has " + std::to_string(fields) + " fields instead of " +
                std::to_string(kImagePixels + 1) + " (64 pixels and the label)");
    }
  };
  Digit digit{};
  for (int pixel = 0; pixel < kImagePixels; ++pixel) {
    expect_more(pixel);
    digit.ink[static_cast<size_t>(pixel)] = static_cast<uint8_t>(line.take(16, pixel + 1));
  }
  expect_more(kImagePixels);
  digit.label = line.take(kClasses - 1, kImagePixels + 1);
  if (!line.is_done()) {
    line.fail("has more than " + std::to_string(kImagePixels + 1) +
              " fields (64 pixels and the label)");
  }
  return digit;
}

}  // namespace

std::vector<Digit> parse_digits(std::string_view text, const std::string& source) {
  std::vector<Digit> digits;
  int64_t number = 0;
  while (!text.empty()) {
    const auto end = text.find('\n');
    auto line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    if (!line.empty() && line.back() == '\r') {
      line.remove_suffix(1);
    }
    digits.push_back(parse_line(Line(line, source, number)));
  }
  if (digits.empty()) {
    throw lb::Error(LB_DATA_LOSS, source + ": no images in it");
  }
  return digits;
}

std::vector<Digit> read_digits(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) {
    throw lb::Error(LB_NOT_FOUND, "cannot read the digits of '" + path +
                                      "'; the project ships them as configs/data/optdigits.csv");
  }
  return parse_digits(text, path);
}

std::vector<Digit> select(const std::vector<Digit>& digits, Split split) {
  std::vector<Digit> chosen;
  for (size_t i = 0; i < digits.size(); ++i) {
    if ((i % 10 == 9) == (split == Split::kHeldOut)) {
      chosen.push_back(digits[i]);
    }
  }
  return chosen;
}

uint64_t splitmix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

std::array<int, kFrames> slide(uint64_t hash) {
  std::array<int, kFrames> positions{};
  int position = static_cast<int>((hash >> 16) % kPositions);
  int direction = (hash >> 32) % 2 == 0 ? 1 : -1;
  for (int& at : positions) {
    at = position;
    if (position + direction < 0 || position + direction >= kPositions) {
      direction = -direction;
    }
    position += direction;
  }
  return positions;
}

Clips::Clips(const std::vector<Digit>& all, Split split)
    : digits_(select(all, split)),
      per_image_(split == Split::kTrain ? kTrainClipsPerImage : kHeldOutClipsPerImage),
      // Held-out clips go on after two clips of every training image.
      first_hash_(split == Split::kTrain ? 0
                                         : kHeldOutClipsPerImage * (all.size() - digits_.size())) {}

std::array<int, kFrames> Clips::positions(int64_t clip) const {
  return slide(splitmix64(first_hash_ + static_cast<uint64_t>(clip)));
}

void Clips::draw(int64_t clip, float* pixels) const {
  const auto& ink = digit(clip).ink;
  std::fill(pixels, pixels + kClipPixels, -1.0F);
  float* frame = pixels;
  for (const int position : positions(clip)) {
    for (int row = 0; row < kImageSide; ++row) {
      float* target = frame + row * kWidth + position * kStride;
      for (int column = 0; column < kImageSide; ++column) {
        const auto value = ink[static_cast<size_t>(row) * kImageSide + static_cast<size_t>(column)];
        target[column] = static_cast<float>(value) / 8.0F - 1.0F;
      }
    }
    frame += kFramePixels;
  }
}

std::string prompt_of(int64_t label) { return "digit " + std::to_string(label); }

int64_t label_of(std::string_view prompt) {
  if (prompt.empty()) {
    return -1;
  }
  if (prompt.size() == 7 && prompt.substr(0, 6) == "digit " && prompt[6] >= '0' &&
      prompt[6] <= '9') {
    return prompt[6] - '0';
  }
  throw lb::Error(LB_INVALID_ARGUMENT, "the prompt '" + std::string(prompt) +
                                           "' is none of \"digit 0\" to \"digit 9\" and not "
                                           "empty; this text encoder knows no others");
}

}  // namespace quickstart
