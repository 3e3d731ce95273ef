// SPDX-License-Identifier: Apache-2.0
// What the executable asks of liblimbeck.so. The executable itself does not link libtorch: it
// validates the manifest, sets what must be set before libtorch is mapped (threads, OpenMP
// policy), opens this library with RTLD_GLOBAL and calls limbeck_run_job.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/export.hpp"
#include "core/manifest/manifest.hpp"
#include "core/plugin/registry.hpp"

namespace limbeck {

enum class JobKind { kTrain, kCheck, kSample };

// How far a check goes; each stage does those before it too.
enum class CheckStage {
  kPlan,  // everything but weights
  kLoad,  // weights and the first batch
  kStep,  // one training step; nothing is written
};

struct Job {
  JobKind kind = JobKind::kTrain;
  const Manifest* manifest = nullptr;
  std::vector<std::string> arguments;  // the command line, for the record of a training
  Registry* registry = nullptr;
  std::filesystem::path weights;    // kSample: an export, used for the trained role; may be empty
  int64_t first_profiled_step = 0;  // kTrain: steps to record; last < first: none
  int64_t last_profiled_step = -1;
  CheckStage stage = CheckStage::kPlan;  // kCheck
  std::string* report = nullptr;         // kCheck: gets what a person wants to know; may be null
  std::vector<std::string> prompts;      // kSample
  std::filesystem::path output;          // kSample: folder for the pictures
};

}  // namespace limbeck

// Runs the job to its end. Throws limbeck::Error. [control]
extern "C" LIMBECK_API void limbeck_run_job(const limbeck::Job& job);
// What the user asked for by a signal, for the running job: an lb_stop. Async-signal-safe.
extern "C" LIMBECK_API void limbeck_request_stop(int how);
