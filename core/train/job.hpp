// SPDX-License-Identifier: Apache-2.0
// What the executable asks of liblimbeck.so. The executable itself does not link libtorch: it
// validates the manifest, sets what must be set before libtorch is mapped (threads, OpenMP
// policy), opens this library with RTLD_GLOBAL and calls limbeck_run_job.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
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

// A component that is tried without a run, as `limbeck plugin check` does it.
struct ComponentTrial {
  const Component* component = nullptr;
  Registry* registry = nullptr;  // only the component's plugin is in it; nothing is started
  std::shared_ptr<const lb_config> config;
  std::filesystem::path scratch;                  // an empty folder
  std::function<void(const std::string&)> stage;  // told before each call: "in create()"

  // Filled in, a sentence each: what breaks the contract, and what could not be tried.
  std::vector<std::string> faults;
  std::vector<std::string> notes;
};

}  // namespace limbeck

// Runs the job to its end. Throws limbeck::Error. [control]
extern "C" LIMBECK_API void limbeck_run_job(const limbeck::Job& job);
// Starts the plugin, makes, uses and destroys instances of the component, and stops the plugin. For
// a process of its own: the plugin may crash. Throws limbeck::Error of init(). [control]
extern "C" LIMBECK_API void limbeck_try_component(limbeck::ComponentTrial& trial);
// What the user asked for by a signal, for the running job: an lb_stop. Async-signal-safe.
extern "C" LIMBECK_API void limbeck_request_stop(int how);
