// SPDX-License-Identifier: Apache-2.0
#include "core/train/train_loop.hpp"

#include <array>
#include <chrono>
#include <cstdio>
#include <random>
#include <system_error>
#include <utility>

#include "core/base/log.hpp"
#include "core/base/profile.hpp"
#include "core/base/text.hpp"
#include "core/plugin/host_table.hpp"
#include "core/track/performance.hpp"
#include "core/track/trackers.hpp"
#include "core/train/checkpoints.hpp"
#include "core/train/export.hpp"
#include "core/train/media.hpp"
#include "core/train/memory_plan.hpp"
#include "core/train/progress.hpp"

namespace limbeck {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Tells runs apart that have the same name and folder.
std::string random_id() {
  std::random_device device;
  std::array<char, 24> text{};
  std::snprintf(text.data(), text.size(), "%08x%08x", device(), device());
  return text.data();
}

class Training {
 public:
  Training(
      Run& run, RunState& state, RunPosition begin, int64_t saved_step, const ProfileSteps& profile)
      : run_(run),
        position_(std::move(begin)),
        trackers_(run.manifest, position_.id, position_.step + 1),
        checkpoints_(
            run,
            state,
            saved_step,
            [this](const SaveOutcome& outcome) {
              run_.callbacks.tell(LB_ON_SAVED, {outcome.step, nullptr, outcome.folder.string()});
            }),
        profile_(profile, run.manifest.run.output_dir),
        performance_({run.mesh.world(), run.mesh.data_size(),
                      run.manifest.performance.peak_tflops_per_gpu}) {
    count_forwards_in(&performance_);
  }
  ~Training() { count_forwards_in(nullptr); }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  void run_all();

 private:
  void run_steps();
  std::map<std::string, double> run_step();
  void add_totals(std::map<std::string, double>& metrics) const;
  void tell(lb_event_kind kind) { run_.callbacks.tell(kind, {position_.step, nullptr, ""}); }
  void stop_if_asked() const;
  void track_reports();
  double seconds_per_step() const;
  void export_weights() const;
  void fail(const Error& error);

  Run& run_;
  RunPosition position_;  // its step is the present one, or the last one
  Trackers trackers_;
  Checkpoints checkpoints_;
  ProfileWindow profile_;
  Performance performance_;

  Clock::time_point begin_ = Clock::now();
  int64_t steps_ = 0;  // of this process
  double step_seconds_ = 0;
  profile::Seconds part_seconds_{};
};

// Hands on what components reported since the last call.
void Training::track_reports() {
  trackers_.scalars(position_.step, run_.metrics.take_numbers());
  for (auto& file : run_.metrics.take_files()) {
    file.path = keep_media(file.path, run_.manifest.run.output_dir, position_.step).string();
    trackers_.file(position_.step, std::move(file));
  }
}

// One step with everything that belongs to it. Returns its metrics.
std::map<std::string, double> Training::run_step() {
  const profile::Scope scope("step", "step");
  performance_.clear();
  profile::take_seconds();
  const auto begin = Clock::now();
  tell(LB_ON_STEP_BEGIN);
  run_.runner->run(position_.step, [this](uint32_t) { tell(LB_ON_ROUND); });
  auto metrics = run_.metrics.take_numbers();
  const double seconds = seconds_since(begin);
  metrics.emplace("step_time_sec", seconds);

  const auto parts = profile::take_seconds();
  ++steps_;
  step_seconds_ += seconds;
  for (size_t i = 0; i < parts.size(); ++i) {
    part_seconds_[i] += parts[i];
  }
  position_.samples += run_.runner->samples() * run_.mesh.data_size();
  if (run_.manifest.performance.is_enabled) {
    // Asking takes tens of microseconds, which is much for a small network.
    const bool asks = position_.step % run_.manifest.run.log_every_steps == 0;
    metrics.merge(performance_.take_metrics(
        {seconds, run_.runner->samples(), parts,
         asks ? std::optional<int64_t>(peak_resident_bytes()) : std::nullopt}));
  }
  add_totals(metrics);
  return metrics;
}

// Counts of the whole run so far.
void Training::add_totals(std::map<std::string, double>& metrics) const {
  metrics.emplace("train/samples", static_cast<double>(position_.samples));
  if (run_.loader != nullptr) {
    metrics.emplace("train/epoch", static_cast<double>(run_.loader->position().epoch));
  }
  for (const auto& optimizer : run_.optimizers) {
    if (optimizer != nullptr) {
      metrics.emplace("updates/" + optimizer->role().name(),
                      static_cast<double>(optimizer->updates()));
    }
  }
}

// 0 before the first one.
double Training::seconds_per_step() const {
  return steps_ == 0 ? 0 : step_seconds_ / static_cast<double>(steps_);
}

// After a step, before the next one.
void Training::stop_if_asked() const {
  const int64_t last = run_.manifest.loop.max_train_steps;
  if (stop_requested() != LB_GO_ON) {
    throw Error(Fault::kCancelled,
                cat("stopped after step ", position_.step, " of ", last, ", as asked"));
  }
  const double limit = run_.manifest.run.max_wall_seconds;
  // What is left must do for another step, and for saving.
  const double needed = seconds_per_step() + checkpoints_.seconds();
  if (limit > 0 && position_.step < last && seconds_since(begin_) + needed > limit) {
    throw Error(Fault::kCancelled, cat("stopped after step ", position_.step, " of ", last,
                                       ": run.max_wall_time is nearly over"));
  }
}

void Training::run_steps() {
  const int64_t last = run_.manifest.loop.max_train_steps;
  if (position_.step >= last) {
    log::info("train", cat("step ", position_.step, " is done and max_train_steps is ", last,
                           ": there is nothing to train"));
  }
  Progress progress(last, run_.manifest.run.log_every_steps);
  while (position_.step < last) {
    ++position_.step;
    profile_.begin_step(position_.step);
    const auto metrics = run_step();
    trackers_.scalars(position_.step, metrics);
    progress.show(position_.step, metrics, run_.runner->samples());
    run_.callbacks.tell(LB_ON_STEP, {position_.step, &metrics, ""});
    const uint32_t requests = run_.callbacks.take_requests();
    tell(LB_ON_VALIDATE);
    checkpoints_.after_step(position_, (requests & LB_WANT_SAVE) != 0);
    track_reports();
    profile_.end_step(position_.step);
    stop_if_asked();
    if ((requests & LB_WANT_STOP) != 0) {
      log::info("train", cat("a callback ended the run after step ", position_.step));
      return;
    }
    progress.resume();
  }
}

void Training::export_weights() const {
  for (const auto& folder : export_roles(run_.roles, run_.manifest.run.output_dir)) {
    log::info("train", cat("weights written to ", folder.string(), " and verified"));
  }
}

void Training::fail(const Error& error) {
  run_.callbacks.tell(LB_ON_ERROR, {position_.step, nullptr, error.what()});
  profile_.finish();
  if (error.fault() != Fault::kCancelled) {
    try {
      checkpoints_.settle();
    } catch (const Error& other) {
      log::warn("checkpoint", other.what());  // the first error is the one to tell
    }
    throw error;
  }
  if (checkpoints_.is_on()) {
    checkpoints_.finish(position_);
    throw Error(Fault::kCancelled, error.message(), "go on with --resume-from-checkpoint latest");
  }
  export_weights();
  throw Error(Fault::kCancelled, error.message(),
              "the weights so far were exported; no checkpoint was written, for "
              "training_state_checkpointing_steps is 0");
}

void Training::run_all() {
  try {
    tell(LB_ON_START);
    track_reports();
    run_.runner->start();
    run_steps();
    log::info("train", time_text(seconds_since(begin_), step_seconds_, part_seconds_));
    checkpoints_.finish(position_);
    export_weights();
    tell(LB_ON_END);
    track_reports();
  } catch (const Error& error) {
    fail(error);
  } catch (const c10::Error& error) {
    fail(Error(Fault::kInternal, error.what_without_backtrace()));
  }
  profile_.finish();
  trackers_.set_succeeded();
}

}  // namespace

void train(Run& run,
           const nlohmann::ordered_json& plugins,
           const std::optional<std::filesystem::path>& checkpoint,
           const ProfileSteps& profile) {
  check_folder(run.manifest, checkpoint.has_value());
  run.load(checkpoint.has_value());
  RunState state(run, plugins);
  RunPosition begin;
  if (checkpoint.has_value()) {
    try {
      begin = state.load(*checkpoint);
    } catch (const Error& error) {
      throw error.with(cat("while resuming from ", checkpoint->string()));
    }
    log::info("resume", cat("going on after step ", begin.step, " of ", checkpoint->string()));
  } else {
    begin.id = random_id();
  }
  claim_folder(run.manifest, begin.step);
  std::error_code ignored;
  const bool is_own =
      checkpoint.has_value() &&
      std::filesystem::equivalent(checkpoint->parent_path(), run.manifest.run.output_dir, ignored);
  Training(run, state, begin, is_own ? begin.step : -1, profile).run_all();
}

}  // namespace limbeck
