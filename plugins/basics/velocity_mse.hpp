// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <limbeck/loss.hpp>

namespace basics {

// Squared error of the predicted velocity.
//
//   L = sum_j m_j w_j (prediction_j - target_j)^2 / max(1, sum_j m_j)
//
// over all elements j of [b, c, T, h, w], in f32 (f64 if the prediction is f64).
// w = weight(sigma) * the entry `weight` [b] if there is one; m = the entry `mask` if there is one,
// else 1. sigma [b] or [b, T] is the entry `sigma`, else `timestep` / 1000; it is read only if the
// weighting uses it. mask is [b, T], or of as many dimensions as the prediction, each of its size
// or 1. weight(sigma): limbeck/diffusion/loss_weight.hpp.
class VelocityMse final : public lb::Loss {
 public:
  static constexpr const char* reads[] = {"prediction", "target",  "sigma?",
                                          "timestep?",  "weight?", "mask?"};

  struct Options {
    std::string weighting = "none";

    template <class V>
    void visit(V& v) {
      v.choice("weighting", weighting,
               "Weight of a sample by its noise level sigma: 1, 1 / sigma^2, or "
               "2 / (pi (1 - 2 sigma + 2 sigma^2)).",
               {"none", "sigma_sqrt", "cosmap"});
    }
  };

  explicit VelocityMse(const Options& options) : options_(options) {}

  lb::Tensor loss(const lb::Step& step, const lb::Batch& values) override;

 private:
  Options options_;
};

}  // namespace basics
