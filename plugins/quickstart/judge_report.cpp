// SPDX-License-Identifier: Apache-2.0
#include "quickstart/judge_report.hpp"

#include "quickstart/bands.hpp"
#include "quickstart/judging.hpp"
#include "quickstart/report.hpp"

namespace quickstart {

void JudgeReport::event(const lb::Event& event) {
  if (!held_out_) {
    held_out_.emplace(read_digits(options_.file), Split::kHeldOut);
  }
  if (event.kind() != LB_ON_END) {
    return;
  }
  const auto verdict = judge(event.models(), 0, *held_out_);
  event.log("judge.frame_accuracy", verdict.frame_accuracy, LB_LAST);
  event.log("judge.clip_accuracy", verdict.clip_accuracy, LB_LAST);
  Report report;
  report.add("judge.frame_accuracy", verdict.frame_accuracy, kJudgeBand);
  report.add("judge.clip_accuracy", verdict.clip_accuracy);
  write_text(event.facts().text("run.output_dir"), "judge.json", report.json());
  lb::log(report.has_passed() ? LB_INFO : LB_WARN, "judge_report",
          "on held-out clips\n" + report.table());
}

}  // namespace quickstart
