// SPDX-License-Identifier: Apache-2.0
// One training step: for each round of the plan its micro-steps (batch, prepare hooks, the
// method's loss, backward), then the finite check, clipping, updates and averages of its roles.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/ATen.h>

#include <limbeck/abi.h>

#include "core/data/loader.hpp"
#include "core/data/service.hpp"
#include "core/exec/models.hpp"
#include "core/optim/optimizer.hpp"
#include "core/step/hooks.hpp"
#include "core/step/plan.hpp"
#include "core/track/metrics.hpp"

namespace limbeck {

// What a step works with. Everything outlives the runner; `loader` may be null when the method
// needs no data.
struct StepParts {
  const Method& method;
  const Models& models;  // of the method
  Hooks& hooks;
  Loader* loader;
  std::vector<RoleOptimizer*> optimizers;  // by the method's role index; null: not trained
  const lb_batch& facts;
  Metrics& metrics;
  int64_t accumulation = 1;
  ClipSpec clip;
};

class StepRunner {
 public:
  explicit StepRunner(StepParts parts);
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  // The method's start(), before the first step. [control]
  void start();
  // Step `step`, from 1. `after_round` is called after the updates of each round, with its index.
  // Throws Error; when a loss or gradient is not finite, no weight of the round has moved.
  // [control]
  void run(int64_t step, const std::function<void(uint32_t round)>& after_round);

  // The micro-steps of step `step`, and no update: no value is looked at and no weight moves, so
  // that tensors need have no contents. For planning. [control]
  void rehearse(int64_t step);

  // Samples this rank has trained on in the last run().
  int64_t samples() const { return samples_; }

 private:
  struct MicroStep;  // what an lb_step's functions find behind ctx

  static lb_status* backward(const lb_step* step, uint32_t bits, lb_tensor* loss) noexcept;
  static lb_status* terms(const lb_step* step,
                          uint32_t role,
                          const lb_batch* values,
                          lb_tensor** out) noexcept;

  lb_step make_step(MicroStep& micro) const;
  lb_step make_hook_step(const MicroStep& micro, const Models& models) const;
  void run_round(MicroStep& micro);
  void run_micro_steps(MicroStep& micro);
  void run_micro_step(MicroStep& micro);
  std::shared_ptr<lb_batch> raw_batch(const MicroStep& micro);
  void prepare(MicroStep& micro, lb_batch& batch);
  void differentiate(MicroStep& micro, uint32_t bits, const at::Tensor& loss);
  at::Tensor sum_terms(const MicroStep& micro, const lb_batch& values);
  void update_roles(MicroStep& micro);
  void check_finite(const MicroStep& micro, const std::vector<double>& norms) const;
  void average_shadows(const Round& round);

  StepParts parts_;
  std::optional<DataService> data_;
  MicroStep* current_ = nullptr;                 // while a micro-step runs
  std::vector<std::shared_ptr<lb_batch>> kept_;  // raw batches of the present round
  int64_t samples_ = 0;
};

}  // namespace limbeck
