// SPDX-License-Identifier: Apache-2.0
// The quickstart's data: 8x8 images of handwritten digits, and short clips in which one digit
// slides left and right. Everything here is a pure function of the file, so a run on any machine
// sees the same clips.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quickstart {

inline constexpr int kClasses = 10;
inline constexpr int kImageSide = 8;
inline constexpr int kImagePixels = kImageSide * kImageSide;
inline constexpr int kFrames = 6;
inline constexpr int kHeight = 8;
inline constexpr int kWidth = 16;
inline constexpr int kFramePixels = kHeight * kWidth;
inline constexpr int kClipPixels = kFrames * kFramePixels;
inline constexpr int kStride = 2;     // pixels a digit moves between two frames
inline constexpr int kPositions = 5;  // (kWidth - kImageSide) / kStride + 1
inline constexpr int kTrainClipsPerImage = 4;
inline constexpr int kHeldOutClipsPerImage = 2;

struct Digit {
  std::array<uint8_t, kImagePixels> ink;  // 0 (background) to 16, row by row
  int64_t label;                          // 0 to 9
};

// Digits of text with one image a line: 64 integers 0 to 16 and the label 0 to 9, separated by
// commas. `source` names the text in messages. Throws lb::Error(LB_DATA_LOSS) with the line and
// what is wrong there; text without a single image is an error too.
std::vector<Digit> parse_digits(std::string_view text, const std::string& source);
// The same for a file. Throws lb::Error(LB_NOT_FOUND) if it cannot be read.
std::vector<Digit> read_digits(const std::string& path);

enum class Split { kTrain, kHeldOut };

// Image i is held out if i mod 10 = 9; the order is kept.
std::vector<Digit> select(const std::vector<Digit>& digits, Split split);

// One step of the generator of Steele, Lea and Flood, "Fast splittable pseudorandom number
// generators" (OOPSLA 2014), for the state x.
uint64_t splitmix64(uint64_t x);

// Horizontal positions 0 to 4 of the digit in each frame, for the hash of a clip: it starts at
// (hash >> 16) mod 5, runs right if hash >> 32 is even, and turns at the edges.
std::array<int, kFrames> slide(uint64_t hash);

// Clips over the digits of one split, addressed by index and drawn on demand.
class Clips {
 public:
  // All digits of a file, of which it keeps one split.
  Clips(const std::vector<Digit>& all, Split split);

  int64_t size() const { return static_cast<int64_t>(digits_.size()) * per_image_; }
  int64_t label(int64_t clip) const { return digit(clip).label; }
  int64_t per_image() const { return per_image_; }
  std::array<int, kFrames> positions(int64_t clip) const;
  // [frames, height, width] in [-1, 1]: ink / 8 - 1, background -1.
  void draw(int64_t clip, float* pixels) const;

 private:
  const Digit& digit(int64_t clip) const {
    return digits_.at(static_cast<size_t>(clip / per_image_));
  }

  std::vector<Digit> digits_;
  int64_t per_image_;
  uint64_t first_hash_;  // the hash input of clip 0
};

// "digit 3", the prompt of a class and the caption of its clips.
std::string prompt_of(int64_t label);
// The class of a prompt; -1 for the empty one. Throws lb::Error(LB_INVALID_ARGUMENT) for any
// other text.
int64_t label_of(std::string_view prompt);

}  // namespace quickstart
