// SPDX-License-Identifier: Apache-2.0
// The callback "judge_report".
#pragma once

#include <optional>
#include <string>

#include <limbeck/callback.hpp>

#include "quickstart/digits.hpp"

namespace quickstart {

// At the end of a run: how many frames of the held-out clips the judge names rightly, as the
// metrics judge.frame_accuracy and judge.clip_accuracy and in <output_dir>/judge.json.
class JudgeReport : public lb::Callback {
 public:
  static constexpr lb_role needs[] = {
      {"judge", "The classifier that is measured.", "limbeck.reward/1", lb::kFrozen, 0}};
  static constexpr uint64_t events = (uint64_t{1} << LB_ON_START) | (uint64_t{1} << LB_ON_END);

  struct Options {
    std::string file;

    template <class V>
    void visit(V& v) {
      v.required_path("file", file, "Digits as text, the file of digit_clips.");
    }
  };

  explicit JudgeReport(const Options& options) : options_(options) {}

  void event(const lb::Event& event) override;

 private:
  Options options_;
  std::optional<Clips> held_out_;  // read at the start, so that a missing file is known early
};

}  // namespace quickstart
