// SPDX-License-Identifier: Apache-2.0
#include "core/train/train_loop.hpp"

#include <chrono>
#include <filesystem>

#include "core/base/files.hpp"
#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/plugin/host_table.hpp"
#include "core/track/trackers.hpp"
#include "core/train/export.hpp"
#include "core/train/progress.hpp"

namespace limbeck {
namespace {

// Hands on what components reported since the last call. Media of a run stay in its folder: a file
// that a component made elsewhere is moved there.
void track(Run& run, int64_t step, Trackers& trackers) {
  trackers.scalars(step, run.metrics.take_numbers());
  for (auto& file : run.metrics.take_files()) {
    const std::filesystem::path path = file.path;
    const auto& home = run.manifest.run.output_dir;
    const auto relative = path.lexically_relative(home);
    if (relative.empty() || *relative.begin() == "..") {
      const auto target = home / "media" / path.filename();
      std::filesystem::create_directories(target.parent_path());
      std::filesystem::rename(path, target);
      file.path = target.string();
    }
    trackers.file(step, std::move(file));
  }
}

// One step with everything that belongs to it. Returns its metrics.
std::map<std::string, double> run_step(Run& run, int64_t step) {
  const auto begin = std::chrono::steady_clock::now();
  run.callbacks.tell(LB_ON_STEP_BEGIN, {step, nullptr, ""});
  run.runner->run(step, [&](uint32_t) { run.callbacks.tell(LB_ON_ROUND, {step, nullptr, ""}); });
  auto metrics = run.metrics.take_numbers();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  metrics.emplace("step_time_sec", seconds.count());
  return metrics;
}

void run_steps(Run& run, Trackers& trackers) {
  const int64_t last = run.manifest.loop.max_train_steps;
  Progress progress(last, run.manifest.run.log_every_steps);
  for (int64_t step = 1; step <= last; ++step) {
    const auto metrics = run_step(run, step);
    trackers.scalars(step, metrics);
    progress.show(step, metrics, run.runner->samples());
    run.callbacks.tell(LB_ON_STEP, {step, &metrics, ""});
    const uint32_t requests = run.callbacks.take_requests();
    run.callbacks.tell(LB_ON_VALIDATE, {step, nullptr, ""});
    track(run, step, trackers);
    if (stop_requested() != LB_GO_ON) {
      throw Error(Fault::kCancelled, cat("stopped after step ", step, " of ", last, ", as asked"));
    }
    if ((requests & LB_WANT_STOP) != 0) {
      log::info("train", cat("a callback ended the run after step ", step));
      return;
    }
    progress.resume();
  }
}

void export_all(const Run& run) {
  for (const auto& folder : export_roles(run.roles, run.manifest.run.output_dir)) {
    log::info("train", cat("weights written to ", folder.string(), " and verified"));
  }
}

}  // namespace

void train(Run& run) {
  const auto& manifest = run.manifest;
  write_file(manifest.run.output_dir / "config.resolved.toml", manifest.resolved);
  run.load();
  Trackers trackers(manifest, 1);
  try {
    run.callbacks.tell(LB_ON_START, {});
    track(run, 0, trackers);
    run.runner->start();
    run_steps(run, trackers);
    export_all(run);
    run.callbacks.tell(LB_ON_END, {manifest.loop.max_train_steps, nullptr, ""});
    track(run, manifest.loop.max_train_steps, trackers);
  } catch (const Error& error) {
    run.callbacks.tell(LB_ON_ERROR, {0, nullptr, error.what()});
    if (error.fault() == Fault::kCancelled) {
      export_all(run);
      throw Error(Fault::kCancelled, error.message(),
                  "the weights so far were exported; this version cannot resume a run from them");
    }
    throw;
  }
  trackers.set_succeeded();
}

}  // namespace limbeck
