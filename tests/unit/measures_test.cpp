// SPDX-License-Identifier: Apache-2.0
// Closed forms, and golden values computed in double precision with PyTorch 2.11.
#include "quickstart/measures.hpp"

#include <algorithm>
#include <cmath>

#include <limbeck/error.hpp>

#include "quickstart/digits.hpp"

#include <doctest/doctest.h>

using doctest::Approx;
using quickstart::ClipSet;
using quickstart::FeatureSet;

namespace {

// The first 20 held-out clips of each class, class by class.
struct HeldOut {
  ClipSet clips;
  std::vector<int64_t> labels;
};

HeldOut held_out() {
  const quickstart::Clips all(
      quickstart::read_digits(LIMBECK_SOURCE_DIR "/configs/data/optdigits.csv"),
      quickstart::Split::kHeldOut);
  HeldOut result{{200, quickstart::kFrames, quickstart::kHeight, quickstart::kWidth, {}}, {}};
  result.clips.pixels.resize(200 * quickstart::kClipPixels);
  for (int64_t label = 0; label < 10; ++label) {
    int taken = 0;
    for (int64_t clip = 0; clip < all.size() && taken < 20; ++clip) {
      if (all.label(clip) == label) {
        all.draw(clip, result.clips.pixels.data() + result.labels.size() * quickstart::kClipPixels);
        result.labels.push_back(label);
        ++taken;
      }
    }
  }
  return result;
}

// Waves with a trend, so that means and covariances are far from simple.
FeatureSet waves(int64_t count, double phase) {
  FeatureSet set{count, 6, {}};
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = 0; j < 6; ++j) {
      const auto x = static_cast<double>(i);
      const auto y = static_cast<double>(j);
      set.values.push_back(std::sin(0.7 * x * (y + 1) + phase * y) +
                           0.1 * y * std::cos(0.3 * x + phase));
    }
  }
  return set;
}

ClipSet constant_clips(std::vector<float> levels) {
  ClipSet clips{static_cast<int64_t>(levels.size()), 1, 2, 2, {}};
  for (const float level : levels) {
    clips.pixels.insert(clips.pixels.end(), 4, level);
  }
  return clips;
}

}  // namespace

TEST_CASE("equal sets have no distance") {
  CHECK(quickstart::frechet_distance(waves(50, 0.2), waves(50, 0.2)) < 1e-9);
  auto moved = waves(50, 0.2);
  moved.values[7] += 0.01;
  CHECK(quickstart::frechet_distance(waves(50, 0.2), moved) > 1e-9);
}

TEST_CASE("a shift of all rows has the squared length of the shift as distance") {
  auto moved = waves(50, 0.2);
  for (size_t i = 0; i < moved.values.size(); i += 6) {
    moved.values[i] += 3;
    moved.values[i + 4] -= 4;
  }
  CHECK(quickstart::frechet_distance(waves(50, 0.2), moved) == Approx(25).epsilon(1e-9));
}

TEST_CASE("scaling one axis has a distance of the squared difference of deviations") {
  // Four points with covariance diag(4/3, 4/3) against diag(16/3, 4/3).
  const FeatureSet a{4, 2, {1, 1, 1, -1, -1, 1, -1, -1}};
  const FeatureSet b{4, 2, {2, 1, 2, -1, -2, 1, -2, -1}};
  CHECK(quickstart::frechet_distance(a, b) == Approx(4.0 / 3).epsilon(1e-12));
}

TEST_CASE("the distance equals the reference where covariances do not commute") {
  const double golden = 0.8104778689618755;
  CHECK(quickstart::frechet_distance(waves(50, 0.2), waves(40, 0.9)) == Approx(golden));
  CHECK(quickstart::frechet_distance(waves(40, 0.9), waves(50, 0.2)) == Approx(golden));
  CHECK(quickstart::frechet_distance(waves(50, 0.2), waves(39, 0.9)) != Approx(golden));
}

TEST_CASE("the distance copes with fewer rows than columns") {
  CHECK(quickstart::frechet_distance(waves(4, 0.2), waves(5, 0.9)) ==
        Approx(3.7757540114550014).epsilon(1e-6));
}

TEST_CASE("a distance needs two rows and equal widths") {
  CHECK_THROWS_AS(quickstart::frechet_distance(waves(1, 0), waves(5, 0)), lb::Error);
  CHECK_THROWS_AS(quickstart::frechet_distance(waves(5, 0), FeatureSet{2, 1, {0, 1}}), lb::Error);
}

TEST_CASE("sliding digits move rigidly and a foreign frame is seen") {
  auto [clips, labels] = held_out();
  CHECK(quickstart::rigid_motion(clips) == Approx(1).epsilon(1e-12));
  // Frame 3 of every clip comes from the clip before it.
  const auto real = clips;
  for (int64_t clip = 0; clip < clips.count; ++clip) {
    const float* foreign = real.frame((clip + clips.count - 1) % clips.count, 3);
    std::copy(foreign, foreign + quickstart::kFramePixels,
              clips.pixels.begin() + clip * quickstart::kClipPixels + 3 * quickstart::kFramePixels);
  }
  CHECK(quickstart::rigid_motion(clips) == Approx(0.871441099604839).epsilon(1e-9));
}

TEST_CASE("a shift by three pixels is no rigid motion of this kind") {
  ClipSet clips{1, 2, 4, 8, std::vector<float>(64, -1.0F)};
  clips.pixels[8] = 1;           // frame 0, row 1, column 0
  clips.pixels[32 + 8 + 2] = 1;  // frame 1, two columns on
  CHECK(quickstart::rigid_motion(clips) == Approx(1));
  std::swap(clips.pixels[32 + 8 + 2], clips.pixels[32 + 8 + 3]);
  CHECK(quickstart::rigid_motion(clips) == Approx(0));
}

TEST_CASE("empty frames count as no motion") {
  CHECK(quickstart::rigid_motion({1, 2, 2, 2, std::vector<float>(8, -1.0F)}) == 0);
}

TEST_CASE("diversity is the mean distance inside classes") {
  // Distances of 2x2 frames are twice the difference of levels: class 0 has 2, 2 and 4, class 1
  // has 1, class 2 has no pair.
  const auto clips = constant_clips({-1, 0, 1, 0.25F, 0.75F, 0});
  const std::vector<int64_t> labels{0, 0, 0, 1, 1, 2};
  CHECK(quickstart::diversity(clips, labels) == Approx((8.0 / 3 + 1) / 2));
  const std::vector<int64_t> others{0, 0, 1, 1, 1, 2};
  CHECK(quickstart::diversity(clips, others) != Approx((8.0 / 3 + 1) / 2));
}

TEST_CASE("held-out digits are as diverse as in the reference") {
  const auto [clips, labels] = held_out();
  CHECK(quickstart::diversity(clips, labels) == Approx(20.867034380911896).epsilon(1e-9));
}
