// SPDX-License-Identifier: Apache-2.0
// The quickstart's data against golden values of an independent implementation.
#include "quickstart/digits.hpp"

#include <cmath>
#include <string>

#include <limbeck/error.hpp>

#include <doctest/doctest.h>

using quickstart::Clips;
using quickstart::Digit;
using quickstart::Split;

namespace {

const std::vector<Digit>& all_digits() {
  static const auto digits =
      quickstart::read_digits(LIMBECK_SOURCE_DIR "/configs/data/optdigits.csv");
  return digits;
}

struct Checksums {
  int64_t total = 0;     // sum of q = 8 (pixel + 1)
  int64_t weighted = 0;  // sum of q * (position in clip mod 251 + 1)
  bool operator==(const Checksums&) const = default;
};

Checksums checksums(const Clips& clips, int64_t first, int64_t end) {
  std::vector<float> pixels(quickstart::kClipPixels);
  Checksums sums;
  for (int64_t clip = first; clip < end; ++clip) {
    clips.draw(clip, pixels.data());
    for (size_t i = 0; i < pixels.size(); ++i) {
      const auto q = static_cast<int64_t>(std::lround(8.0F * (pixels[i] + 1.0F)));
      sums.total += q;
      sums.weighted += q * static_cast<int64_t>(i % 251 + 1);
    }
  }
  return sums;
}

std::array<int, 6> offsets(const Clips& clips, int64_t clip) {
  auto positions = clips.positions(clip);
  for (auto& position : positions) {
    position *= quickstart::kStride;
  }
  return positions;
}

std::string valid_line() {
  std::string line;
  for (int i = 0; i < 64; ++i) {
    line += std::to_string(i % 17) + ",";
  }
  return line + "7\n";
}

std::string message_of(const std::string& text) {
  try {
    quickstart::parse_digits(text, "x.csv");
  } catch (const lb::Error& error) {
    CHECK(error.code == LB_DATA_LOSS);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the hash has its published first value") {
  CHECK(quickstart::splitmix64(0) == 0xe220a8397b1dcdafU);
  CHECK(quickstart::splitmix64(1) != 0xe220a8397b1dcdafU);
}

TEST_CASE("every tenth image is held out") {
  CHECK(all_digits().size() == 1797);
  const auto train = quickstart::select(all_digits(), Split::kTrain);
  const auto held_out = quickstart::select(all_digits(), Split::kHeldOut);
  CHECK(train.size() == 1618);
  CHECK(held_out.size() == 179);
  CHECK(train[9].ink == all_digits()[10].ink);
  CHECK(held_out[0].ink == all_digits()[9].ink);
}

TEST_CASE("clips move as the golden offsets say") {
  const Clips clips(all_digits(), Split::kTrain);
  CHECK(clips.size() == 6472);
  const std::array<int, 6> from_left{0, 2, 4, 6, 8, 6};
  const std::array<int, 6> from_right{6, 8, 6, 4, 2, 0};
  CHECK(offsets(clips, 0) == from_left);
  CHECK(offsets(clips, 1) == from_left);
  CHECK(offsets(clips, 2) == from_right);
  CHECK(offsets(clips, 3) == from_right);
  CHECK(offsets(clips, 4) == from_right);
  CHECK(clips.label(0) == 0);
  CHECK(clips.label(4) == 1);
}

TEST_CASE("a digit turns at both edges") {
  // Position 1, to the left: hash >> 16 is 1 modulo 5 and hash >> 32 odd.
  uint64_t hash = uint64_t{1} << 32;
  while ((hash >> 16) % 5 != 1) {
    hash += uint64_t{1} << 16;
  }
  CHECK(quickstart::slide(hash) == std::array<int, 6>{1, 0, 1, 2, 3, 4});
  CHECK(quickstart::slide(hash + (uint64_t{1} << 32)) != std::array<int, 6>{1, 0, 1, 2, 3, 4});
}

TEST_CASE("labels are as frequent as in the reference") {
  const Clips clips(all_digits(), Split::kTrain);
  std::array<int, 10> counts{};
  for (int64_t clip = 0; clip < clips.size(); ++clip) {
    ++counts[static_cast<size_t>(clips.label(clip))];
  }
  CHECK(counts == std::array<int, 10>{656, 688, 636, 572, 680, 664, 676, 640, 620, 640});
}

TEST_CASE("pixels of all clips have the golden checksums") {
  const Clips train(all_digits(), Split::kTrain);
  const Clips held_out(all_digits(), Split::kHeldOut);
  CHECK(held_out.size() == 358);
  CHECK(checksums(train, 0, train.size()) == Checksums{12149784, 1498395489});
  CHECK(checksums(train, 0, 1).weighted == 217690);
  CHECK(checksums(held_out, 0, held_out.size()) == Checksums{665724, 81814653});
}

TEST_CASE("one changed ink value or clip changes the checksums") {
  auto digits = all_digits();
  auto& ink = digits[100].ink[20];
  ink = static_cast<uint8_t>(ink == 0 ? 1 : ink - 1);
  const Clips changed(digits, Split::kTrain);
  CHECK_FALSE(checksums(changed, 0, changed.size()) == Checksums{12149784, 1498395489});
  const Clips train(all_digits(), Split::kTrain);
  CHECK(checksums(train, 2, 3).weighted != 217690);
}

TEST_CASE("a line is parsed strictly") {
  const auto digits = quickstart::parse_digits(valid_line(), "x.csv");
  REQUIRE(digits.size() == 1);
  CHECK(digits[0].label == 7);
  CHECK(digits[0].ink[16] == 16);
  CHECK(quickstart::parse_digits(valid_line().substr(0, valid_line().size() - 1) + "\r\n", "x")
            .size() == 1);
}

TEST_CASE("a damaged line is an error that names the line and the field") {
  const auto line = valid_line();
  CHECK(message_of("") == "x.csv: no images in it");
  CHECK(message_of(line + "\n" + line) == "x.csv:2: field 1 is '', not an integer from 0 to 16");
  CHECK(message_of(line + "17" + line.substr(1)) ==
        "x.csv:2: field 1 is '17', not an integer from 0 to 16");
  CHECK(message_of("-1" + line.substr(1)) ==
        "x.csv:1: field 1 is '-1', not an integer from 0 to 16");
  CHECK(message_of("0x" + line.substr(1)) ==
        "x.csv:1: field 1 is '0x', not an integer from 0 to 16");
  CHECK(message_of("1,2,3\n") == "x.csv:1: has 3 fields instead of 65 (64 pixels and the label)");
  CHECK(message_of(line.substr(0, line.size() - 3) + "\n") ==
        "x.csv:1: has 64 fields instead of 65 (64 pixels and the label)");
  CHECK(message_of(line.substr(0, line.size() - 2) + "10\n") ==
        "x.csv:1: field 65 is '10', not an integer from 0 to 9");
  CHECK(message_of(line.substr(0, line.size() - 1) + ",1\n") ==
        "x.csv:1: has more than 65 fields (64 pixels and the label)");
}

TEST_CASE("a missing file is named") {
  CHECK_THROWS_WITH_AS(quickstart::read_digits("/nowhere/digits.csv"),
                       doctest::Contains("/nowhere/digits.csv"), lb::Error);
}

TEST_CASE("prompts name a digit or nothing") {
  CHECK(quickstart::label_of(quickstart::prompt_of(3)) == 3);
  CHECK(quickstart::label_of("") == -1);
  CHECK_THROWS_AS(quickstart::label_of("digit 10"), lb::Error);
  CHECK_THROWS_AS(quickstart::label_of("Digit 1"), lb::Error);
  CHECK_THROWS_AS(quickstart::label_of("a cat"), lb::Error);
}
