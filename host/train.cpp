// SPDX-License-Identifier: Apache-2.0
#include "host/commands.hpp"
#include "host/engine.hpp"

namespace limbeck::host {

void train(const Options& options) {
  if (options.is_dry_run) {
    check(options);
    return;
  }
  Job job;
  job.kind = JobKind::kTrain;
  run(job, options.config, options.manifest);
}

}  // namespace limbeck::host
