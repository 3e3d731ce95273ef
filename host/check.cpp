// SPDX-License-Identifier: Apache-2.0
#include "host/commands.hpp"
#include "host/engine.hpp"

namespace limbeck::host {

void check(const Options& options) {
  Job job;
  job.kind = JobKind::kCheck;
  run(job, options.config, options.manifest);
}

}  // namespace limbeck::host
