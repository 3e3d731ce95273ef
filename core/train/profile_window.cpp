// SPDX-License-Identifier: Apache-2.0
#include "core/train/profile_window.hpp"

#include "core/base/error.hpp"
#include "core/base/files.hpp"
#include "core/base/log.hpp"
#include "core/base/profile.hpp"
#include "core/base/text.hpp"

namespace limbeck {

ProfileWindow::~ProfileWindow() { profile::stop(); }

void ProfileWindow::begin_step(int64_t step) {
  if (step == steps_.first && step <= steps_.last) {
    profile::name_thread("training");
    profile::start();
    is_begun_ = true;
  }
}

void ProfileWindow::end_step(int64_t step) {
  if (!is_begun_ || step > steps_.last) {
    return;
  }
  ++recorded_;
  if (step == steps_.last) {
    profile::stop();
  }
}

void ProfileWindow::finish() {
  if (steps_.last < steps_.first) {
    return;
  }
  profile::stop();
  if (!is_begun_) {
    log::warn("profile", cat("the run ended before step ", steps_.first,
                             ", the first one to record: there is no profile"));
    return;
  }
  const auto boxes = profile::boxes();
  const auto table =
      cat("time of the training thread in ", recorded_, " steps from step ", steps_.first, "\n",
          profile::to_table(profile::summarise(boxes, profile::this_thread())));
  const auto trace = output_dir_ / "profile.json";
  try {
    write_file(trace, profile::to_trace(boxes));
    write_file(output_dir_ / "profile.txt", table);
  } catch (const Error& error) {
    log::warn("profile", error.what());
  }
  log::info("profile", cat(trace.string(), " opens in ui.perfetto.dev; ", table));
}

}  // namespace limbeck
