// SPDX-License-Identifier: Apache-2.0
#include "core/train/job.hpp"

#include <sstream>
#include <string>

#include <limbeck/draft/sample.h>

#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/plugin/host_table.hpp"
#include "core/plugin/status.hpp"
#include "core/train/check.hpp"
#include "core/train/record.hpp"
#include "core/train/run.hpp"
#include "core/train/run_state.hpp"
#include "core/train/train_loop.hpp"

namespace limbeck {
namespace {

void train_recorded(Run& run, const Job& job) {
  std::istringstream lines(describe_run(run));
  for (std::string line; std::getline(lines, line);) {
    log::info("run", line);
  }
  const auto checkpoint = checkpoint_to_resume(run.manifest);
  RunRecord record(run, *job.registry, job.arguments);
  if (checkpoint.has_value()) {
    record.set_resumed(*checkpoint);
  }
  try {
    train(run, record.plugins(), checkpoint, {job.first_profiled_step, job.last_profiled_step});
  } catch (const Error& error) {
    record.finish(error);
    throw;
  }
  record.finish();
}

void sample(Run& run, const Job& job) {
  run.load();
  if (!job.weights.empty()) {
    for (auto& role : run.roles) {
      if (role->is_trained()) {
        role->load(job.weights);
      }
    }
  }
  const auto extension = run.callbacks.find_extension("limbeck.sample/1");
  if (extension.table == nullptr) {
    throw Error(Fault::kManifest, "no callback of this manifest can sample",
                "add a callback that provides limbeck.sample/1, such as [callbacks.validation] of "
                "the basics plugin");
  }
  lb_batch prompts;
  prompts.put("prompt", TextRows(job.prompts.begin(), job.prompts.end()));
  prompts.put("output", TextRows{job.output.string()});
  const auto& table = *static_cast<const lb_sample_vtable*>(extension.table);
  const at::NoGradGuard no_grad;
  check(table.sample(extension.self, &extension.event, &prompts), "while sampling");
  for (const auto& file : run.metrics.take_files()) {
    log::info("sample", cat("wrote ", file.path));
  }
}

}  // namespace
}  // namespace limbeck

void limbeck_run_job(const limbeck::Job& job) {
  using limbeck::JobKind;
  try {
    limbeck::start_process(*job.manifest, *job.registry);
    if (job.kind == JobKind::kCheck) {
      limbeck::check_run(job);
    } else {
      limbeck::Run run(*job.manifest);
      switch (job.kind) {
        case JobKind::kTrain:
          limbeck::train_recorded(run, job);
          break;
        case JobKind::kCheck:
          break;
        case JobKind::kSample:
          limbeck::sample(run, job);
          break;
      }
    }
  } catch (const c10::Error& error) {
    throw limbeck::Error(limbeck::Fault::kInternal, error.what_without_backtrace());
  }
}

void limbeck_request_stop(int how) { limbeck::request_stop(how); }
