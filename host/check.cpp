// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "host/commands.hpp"
#include "host/engine.hpp"

namespace limbeck::host {
namespace {

CheckStage stage_of(DryRun stage) {
  return stage == DryRun::kStep   ? CheckStage::kStep
         : stage == DryRun::kLoad ? CheckStage::kLoad
                                  : CheckStage::kPlan;
}

// Nothing of the run is created: only the manifest and the plugins' tables are looked at.
void parse(const Options& options) {
  auto& registry = *new Registry;  // never destroyed: its libraries stay open
  open_on_demand(registry);
  const Manifest manifest = load_manifest(options.config, options.manifest, registry);
  if (options.prints_config) {
    std::cout << manifest.explained;
  } else {
    std::cout << options.config.string() << " is a valid manifest; its files were not looked at\n";
  }
}

// What was found is worth seeing beside what then went wrong.
struct PrintAtEnd {
  std::string text;
  ~PrintAtEnd() { std::cout << text << std::flush; }
};

}  // namespace

void check(const Options& options) {
  if (options.dry_run == DryRun::kParse || options.prints_config) {
    parse(options);
    return;
  }
  PrintAtEnd report;
  Job job;
  job.kind = JobKind::kCheck;
  job.stage = stage_of(options.dry_run);
  job.report = &report.text;
  auto manifest = options.manifest;
  manifest.defers_weights = true;  // told after the plan, which does without them
  run(job, options.config, manifest);
  report.text += options.config.string() + " is valid\n";
}

}  // namespace limbeck::host
