// SPDX-License-Identifier: Apache-2.0
// Everything a run is made of, put together from a manifest. The only place that wires folders
// of core together; the loop and the other jobs use what is here.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/callback/callback_list.hpp"
#include "core/data/loader.hpp"
#include "core/exec/models.hpp"
#include "core/manifest/manifest.hpp"
#include "core/optim/optimizer.hpp"
#include "core/role/role_set.hpp"
#include "core/step/hooks.hpp"
#include "core/step/plan.hpp"
#include "core/step/step_runner.hpp"
#include "core/track/metrics.hpp"

namespace limbeck {

// Sets the device of the process and offers the services of the ABI. [control]
void provide_services();
// Sets threads and device of the process, gives plugins their services, and starts them. Throws
// Error. Once per process. [control]
void start_process(const Manifest& manifest, Registry& registry);

// Members are in order of construction; destruction goes the other way.
struct Run {
  // Creates every component and declares every network, and opens the data set: whatever can be
  // wrong with a manifest is found here, before weights are allocated or read. Throws Error.
  // [control]
  explicit Run(const Manifest& manifest);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Allocates and reads the weights of all roles, and makes optimizers and the step runner.
  // `resumes`: what training changes is restored afterwards and need not be read.
  void load(bool resumes = false);
  // The same with weights that are allocated on the run device and not read: for a rehearsal where
  // tensors have no contents.
  void load_shapes();

  const Manifest& manifest;
  Mesh mesh;
  RoleSet roles;
  Method method;
  Models models;  // of the method
  Hooks hooks;
  lb_batch facts;
  Metrics metrics;
  std::unique_ptr<Loader> loader;  // null without [training.data]
  CallbackList callbacks;
  std::vector<std::unique_ptr<RoleOptimizer>> optimizers;  // by the method's role index
  std::unique_ptr<StepRunner> runner;                      // after load()

 private:
  void make_runner();
};

}  // namespace limbeck
