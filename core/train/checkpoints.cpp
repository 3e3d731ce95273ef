// SPDX-License-Identifier: Apache-2.0
#include "core/train/checkpoints.hpp"

#include <array>
#include <chrono>
#include <cstdio>
#include <utility>

#include "core/base/log.hpp"
#include "core/base/profile.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/folders.hpp"

namespace limbeck {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::string size_text(const SaveOutcome& outcome) {
  std::array<char, 64> text{};
  const auto megabytes = static_cast<double>(outcome.bytes) / 1e6;
  std::snprintf(text.data(), text.size(), "%.1f MB in %.2f s", megabytes, outcome.seconds);
  return text.data();
}

}  // namespace

void check_folder(const Manifest& manifest, bool resumes) {
  const auto& folder = manifest.run.output_dir;
  if (manifest.checkpoint.every_steps == 0 || resumes) {
    return;
  }
  if (const auto found = list_checkpoints(folder); !found.empty()) {
    throw Error(Fault::kData,
                cat(folder.string(), " has checkpoints of an earlier run, the newest of step ",
                    found.front().step),
                "go on with --resume-from-checkpoint latest, choose another folder with "
                "--override-output-dir, or remove them");
  }
}

void claim_folder(const Manifest& manifest, int64_t step) {
  if (manifest.checkpoint.every_steps == 0) {
    return;
  }
  remove_unfinished_checkpoints(manifest.run.output_dir);
  for (const auto& aside : set_aside_later_checkpoints(manifest.run.output_dir, step)) {
    log::warn("checkpoint", cat("a later checkpoint is now ", aside.string(),
                                ": the run goes on from step ", step));
  }
}

Checkpoints::Checkpoints(Run& run,
                         RunState& state,
                         int64_t saved_step,
                         std::function<void(const SaveOutcome&)> on_saved)
    : run_(run),
      state_(state),
      on_saved_(std::move(on_saved)),
      every_steps_(run.manifest.checkpoint.every_steps),
      saved_step_(saved_step),
      saver_(run.manifest.run.output_dir, run.manifest.checkpoint.total_limit) {}

void Checkpoints::after_step(const RunPosition& position, bool is_requested) {
  if (const auto outcome = saver_.poll()) {
    tell(*outcome);
  }
  const bool is_due = is_on() && position.step % every_steps_ == 0;
  if (is_due || is_requested || is_put_off_) {
    is_put_off_ = !try_save(position);
  }
}

// False: a component would rather be asked after the next step.
bool Checkpoints::try_save(const RunPosition& position) {
  const profile::Scope scope("checkpoint", "checkpoint");
  const auto begin = Clock::now();
  // One copy of the state is enough for any machine.
  settle();
  if (!run_.callbacks.may_save(position.step)) {
    return false;
  }
  auto saved = state_.save(position);
  if (!saved.has_value()) {
    return false;
  }
  saver_.start(std::move(saved->snapshot), std::move(saved->text));
  run_.metrics.add("checkpoint/stall_sec", seconds_since(begin), LB_LAST);
  return true;
}

void Checkpoints::finish(const RunPosition& position) {
  settle();
  if (!is_on() || saved_step_ == position.step) {
    return;
  }
  if (!try_save(position)) {
    throw Error(
        Fault::kData,
        cat("step ", position.step, " was not saved: a component cannot save its state now"),
        saved_step_ < 0 ? "" : cat("the last checkpoint is that of step ", saved_step_));
  }
  const auto outcome = saver_.wait();
  tell(*outcome);
  if (outcome->error.has_value()) {
    throw outcome->error->with(cat("while saving step ", position.step));
  }
}

void Checkpoints::settle() {
  if (const auto outcome = saver_.wait()) {
    tell(*outcome);
  }
}

void Checkpoints::tell(const SaveOutcome& outcome) {
  seconds_ = outcome.seconds;
  run_.metrics.add("checkpoint/write_sec", outcome.seconds, LB_LAST);
  run_.metrics.add("checkpoint/failed", outcome.error.has_value() ? 1.0 : 0.0, LB_LAST);
  if (outcome.error.has_value()) {
    log::error(
        "checkpoint",
        cat("step ", outcome.step, " was not saved: ", outcome.error->what(),
            saved_step_ < 0 ? "" : cat("; the last checkpoint is that of step ", saved_step_)));
    return;
  }
  saved_step_ = outcome.step;
  log::info("checkpoint", cat("saved ", outcome.folder.string(), " (", size_text(outcome), ")"));
  on_saved_(outcome);
}

}  // namespace limbeck
