// SPDX-License-Identifier: Apache-2.0
// What a judge says about clips.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <limbeck/step.hpp>

#include "quickstart/digits.hpp"
#include "quickstart/measures.hpp"

namespace quickstart {

// Clips of a data set by index, f32 [n, 1, 6, 8, 16] on the run's device.
lb::Tensor clip_tensor(const Clips& clips, const std::vector<int64_t>& indices);

// The first of the clips of each of the first `images` images of every class, class by class.
std::vector<int64_t> first_clips(const Clips& clips, int64_t images);

struct Verdict {
  double frame_accuracy = 0;  // frames whose likeliest class is the label
  double clip_accuracy = 0;   // the same for clips, from their mean probabilities
  FeatureSet features;        // of all frames
};

// Runs the judge, `role` of the component that is called, without history on `pixels`
// [n, 1, F, h, w] that should show `labels`.
Verdict judge(const lb::Models& models,
              uint32_t role,
              const lb::Tensor& pixels,
              const std::vector<int64_t>& labels);

// The verdict on all clips of a set.
Verdict judge(const lb::Models& models, uint32_t role, const Clips& clips);

// Writes text to <folder>/<name>, complete or not at all. Throws std::runtime_error with path and
// reason.
void write_text(const std::string& folder, const std::string& name, const std::string& text);

}  // namespace quickstart
