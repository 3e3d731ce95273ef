// SPDX-License-Identifier: Apache-2.0
// AdamW and the moving average of one trained role, on its flat buffers.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/ATen.h>

#include "core/manifest/manifest.hpp"
#include "core/role/role.hpp"

namespace limbeck {

// Decoupled weight decay (Loshchilov and Hutter 2019) with libtorch's order of operations:
//   p -= lr wd p;  m += (1 - b1)(g - m);  v = b2 v + (1 - b2) g^2
//   p -= lr / (1 - b1^k)  m / (sqrt(v) / sqrt(1 - b2^k) + eps)
// k counts the updates of a part: a part that took no part in a round is not moved, not decayed
// and not counted.
class RoleOptimizer {
 public:
  // `horizon`: how often the role will be updated in the whole run, for its schedule.
  RoleOptimizer(Role& role, int64_t horizon);

  Role& role() { return role_; }
  // Updates made so far, and the learning rate of the next one.
  int64_t updates() const { return updates_; }
  double learning_rate() const;

  // The moments, over the elements of role().master(), and the counts of updates: what a checkpoint
  // keeps of an optimizer.
  const at::Tensor& exp_avg() const { return exp_avg_; }
  const at::Tensor& exp_avg_sq() const { return exp_avg_sq_; }
  struct Counts {
    int64_t updates = 0;           // of the role
    int64_t averaged_updates = 0;  // of its moving average
    std::vector<int64_t> parts;    // of each part of the network
  };
  Counts counts() const;
  void set_counts(const Counts& counts);

  // The norm of the accumulated gradient over all ranks. Synchronises.
  double grad_norm() const;
  // What to multiply a gradient of norm `norm` by, so that its norm is at most `max_norm`.
  static double clip_scale(double norm, double max_norm);
  // One update from the accumulated gradient times `grad_scale`, then the moving average. `step` is
  // the number of the training step, from 1.
  void update(int64_t step, double grad_scale);
  // Zeroes the gradient for the next round.
  void clear_grad();

 private:
  Role& role_;
  int64_t horizon_;
  int64_t updates_ = 0;
  int64_t averaged_updates_ = 0;
  at::Tensor exp_avg_;
  at::Tensor exp_avg_sq_;
  std::vector<int64_t> part_updates_;
};

// The decay of average number `n` (from 1): `decay` itself, or at most (1 + n) / (10 + n) (ratio)
// or 1 - (1 + n)^(-2/3) (power), so that an average forgets its random start quickly; or, as
// DiffusionNFT averages a policy (Zheng et al. 2025), `initial_decay` up to n = flat_steps, then
// (n - flat_steps) ramp, at most `decay` (ramp).
double ema_decay(const EmaSpec& spec, int64_t n);

}  // namespace limbeck
