// SPDX-License-Identifier: Apache-2.0
#include "host/commands.hpp"
#include "host/engine.hpp"

namespace limbeck::host {

void sample(const Options& options) {
  Job job;
  job.kind = JobKind::kSample;
  job.prompts = options.prompts;
  job.weights = options.weights;
  job.output = options.output;
  run(job, options.config, options.manifest);
}

}  // namespace limbeck::host
