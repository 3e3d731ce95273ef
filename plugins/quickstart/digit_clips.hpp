// SPDX-License-Identifier: Apache-2.0
// The data set "digit_clips".
#pragma once

#include <string>
#include <vector>

#include <limbeck/dataset.hpp>

#include "quickstart/digits.hpp"

namespace quickstart {

// Clips of sliding digits (digits.hpp), drawn when they are read:
//   pixels   f32 [1, 6, 8, 16] in [-1, 1]
//   caption  text, "digit 3"
//   label    i64 []
class DigitClips : public lb::Dataset {
 public:
  struct Options {
    std::string file;
    std::string split = "train";

    template <class V>
    void visit(V& v) {
      v.required_path("file", file, "Digits as text, one image a line: 64 pixels and the label.");
      v.choice("split", split, "Nine of ten images, four clips each; or the others, two each.",
               {"train", "held_out"});
    }
  };

  DigitClips(const Options& options, const lb_source& source);

  int64_t length() override { return clips_.size(); }
  std::vector<lb::Field> fields() override;
  void read(int64_t index, lb::Batch& sample) override;

 private:
  Clips clips_;
};

}  // namespace quickstart
