// SPDX-License-Identifier: Apache-2.0
// Squared errors of velocities with the weights and masks of a batch, for several losses.
#pragma once

#include <string>
#include <vector>

#include <limbeck/batch.hpp>
#include <limbeck/tensor.hpp>

namespace basics {

// Weight of a sample by its noise level: an option of every loss that uses velocity_error().
struct LevelWeight {
  std::string weighting = "none";

  template <class V>
  void visit(V& v) {
    v.choice("weighting", weighting,
             "Weight of a sample by its noise level sigma: 1, 1 / sigma^2, or "
             "2 / (pi (1 - 2 sigma + 2 sigma^2)).",
             {"none", "sigma_sqrt", "cosmap"});
  }
};

// [b] or [b, T] as a tensor that multiplies one of shape `sizes` = [b, c, T, ...]; a tensor of as
// many dimensions stays. `name` is for the error about other shapes.
lb::Tensor spread(const lb::Tensor& values, const char* name, const std::vector<int64_t>& sizes);

// sum_j m_j w_j (a_j - b_j)^2 / max(1, sum_j m_j)
//
// over all elements j of [b, c, T, h, w], in f32 (f64 if an operand is f64).
// w = weight(sigma) * the entry `weight` [b] if there is one; m = the entry `mask` if there is one,
// else 1. sigma [b] or [b, T] is the entry `sigma`, else `timestep` / 1000; it is read only if the
// weighting uses it. mask is [b, T], or of as many dimensions as a, each of its size or 1.
// weight(sigma): limbeck/diffusion/loss_weight.hpp. The names are for the error about shapes that
// differ.
lb::Tensor velocity_error(const lb::Tensor& a,
                          const char* name_of_a,
                          const lb::Tensor& b,
                          const char* name_of_b,
                          const lb::Batch& values,
                          const LevelWeight& options);

}  // namespace basics
