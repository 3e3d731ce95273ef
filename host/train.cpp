// SPDX-License-Identifier: Apache-2.0
#include "host/commands.hpp"
#include "host/engine.hpp"

namespace limbeck::host {

void train(const Options& options) {
  if (options.dry_run != DryRun::kNone) {
    check(options);
    return;
  }
  Job job;
  job.kind = JobKind::kTrain;
  job.arguments = options.arguments;
  job.first_profiled_step = options.profile.first;
  job.last_profiled_step = options.profile.last;
  run(job, options.config, options.manifest);
}

}  // namespace limbeck::host
