// SPDX-License-Identifier: Apache-2.0
// Measures of generated clips that need no network, and the distance of two sets of features.
// All sums are in double.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace quickstart {

// One-channel clips, [count, frames, height, width], in [-1, 1].
struct ClipSet {
  int64_t count = 0;
  int64_t frames = 0;
  int64_t height = 0;
  int64_t width = 0;
  std::vector<float> pixels;

  const float* frame(int64_t clip, int64_t index) const {
    return pixels.data() + (clip * frames + index) * height * width;
  }
};

// Rows of features, [count, width].
struct FeatureSet {
  int64_t count = 0;
  int64_t width = 0;
  std::vector<double> values;
};

// Squared Frechet distance of the normal distributions fitted to two sets:
//   |m_a - m_b|^2 + tr(C_a + C_b - 2 (C_a C_b)^(1/2)),
// with means m and sample covariances C (divided by count - 1), as Heusel et al., "GANs trained by
// a two time-scale update rule" (2017). At least two rows each and equal widths, else
// lb::Error(LB_INVALID_ARGUMENT).
double frechet_distance(const FeatureSet& a, const FeatureSet& b);

// How rigidly a clip moves: the mean over clips and pairs of neighbouring frames of the best cosine
// similarity of pixel + 1 over shifts of the first frame by -2, 0 or 2 pixels in both directions,
// background moving in. 1 for one shape that moves by such steps. Frames without ink count 0.
double rigid_motion(const ClipSet& clips);

// How different clips of one class are: the L2 distance of two clips over all frames, averaged over
// the pairs of a class, then over classes with at least two clips; 0 if there is none. One label a
// clip.
double diversity(const ClipSet& clips, std::span<const int64_t> labels);

}  // namespace quickstart
