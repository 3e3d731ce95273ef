// SPDX-License-Identifier: Apache-2.0
#include "core/train/train_loop.hpp"

#include <chrono>

#include "core/base/log.hpp"
#include "core/base/profile.hpp"
#include "core/base/text.hpp"
#include "core/plugin/host_table.hpp"
#include "core/track/performance.hpp"
#include "core/track/trackers.hpp"
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

class Training {
 public:
  Training(Run& run, const ProfileSteps& profile)
      : run_(run),
        trackers_(run.manifest, 1),
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
  void tell(lb_event_kind kind) { run_.callbacks.tell(kind, {step_, nullptr, ""}); }
  void track_reports();
  void export_weights() const;
  void fail(const Error& error);

  Run& run_;
  Trackers trackers_;
  ProfileWindow profile_;
  Performance performance_;

  int64_t step_ = 0;     // the present one, or the last one
  int64_t samples_ = 0;  // trained on so far, over all ranks
  double step_seconds_ = 0;
  profile::Seconds part_seconds_{};
};

// Hands on what components reported since the last call.
void Training::track_reports() {
  trackers_.scalars(step_, run_.metrics.take_numbers());
  for (auto& file : run_.metrics.take_files()) {
    file.path = keep_media(file.path, run_.manifest.run.output_dir, step_).string();
    trackers_.file(step_, std::move(file));
  }
}

// One step with everything that belongs to it. Returns its metrics.
std::map<std::string, double> Training::run_step() {
  const profile::Scope scope("step", "step");
  performance_.clear();
  profile::take_seconds();
  const auto begin = Clock::now();
  tell(LB_ON_STEP_BEGIN);
  run_.runner->run(step_, [this](uint32_t) { tell(LB_ON_ROUND); });
  auto metrics = run_.metrics.take_numbers();
  const double seconds = seconds_since(begin);
  metrics.emplace("step_time_sec", seconds);

  const auto parts = profile::take_seconds();
  step_seconds_ += seconds;
  for (size_t i = 0; i < parts.size(); ++i) {
    part_seconds_[i] += parts[i];
  }
  samples_ += run_.runner->samples() * run_.mesh.data_size();
  if (run_.manifest.performance.is_enabled) {
    // Asking takes tens of microseconds, which is much for a small network.
    const bool asks = step_ % run_.manifest.run.log_every_steps == 0;
    metrics.merge(performance_.take_metrics(
        {seconds, run_.runner->samples(), parts,
         asks ? std::optional<int64_t>(peak_resident_bytes()) : std::nullopt}));
  }
  add_totals(metrics);
  return metrics;
}

// Counts of the whole run so far.
void Training::add_totals(std::map<std::string, double>& metrics) const {
  metrics.emplace("train/samples", static_cast<double>(samples_));
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

void Training::run_steps() {
  const int64_t last = run_.manifest.loop.max_train_steps;
  Progress progress(last, run_.manifest.run.log_every_steps);
  for (step_ = 1; step_ <= last; ++step_) {
    profile_.begin_step(step_);
    const auto metrics = run_step();
    trackers_.scalars(step_, metrics);
    progress.show(step_, metrics, run_.runner->samples());
    run_.callbacks.tell(LB_ON_STEP, {step_, &metrics, ""});
    const uint32_t requests = run_.callbacks.take_requests();
    tell(LB_ON_VALIDATE);
    track_reports();
    profile_.end_step(step_);
    if (stop_requested() != LB_GO_ON) {
      throw Error(Fault::kCancelled, cat("stopped after step ", step_, " of ", last, ", as asked"));
    }
    if ((requests & LB_WANT_STOP) != 0) {
      log::info("train", cat("a callback ended the run after step ", step_));
      return;
    }
    progress.resume();
  }
  step_ = last;
}

void Training::export_weights() const {
  for (const auto& folder : export_roles(run_.roles, run_.manifest.run.output_dir)) {
    log::info("train", cat("weights written to ", folder.string(), " and verified"));
  }
}

void Training::fail(const Error& error) {
  run_.callbacks.tell(LB_ON_ERROR, {step_, nullptr, error.what()});
  profile_.finish();
  if (error.fault() == Fault::kCancelled) {
    export_weights();
    throw Error(Fault::kCancelled, error.message(),
                "the weights so far were exported; this version cannot resume a run from them");
  }
  throw error;
}

void Training::run_all() {
  const auto begin = Clock::now();
  try {
    tell(LB_ON_START);
    track_reports();
    run_.runner->start();
    run_steps();
    log::info("train", time_text(seconds_since(begin), step_seconds_, part_seconds_));
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

void train(Run& run, const ProfileSteps& profile) {
  run.load();
  Training(run, profile).run_all();
}

}  // namespace limbeck
