// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limbeck/loss.hpp>

#include "basics/velocity_error.hpp"

namespace basics {

// Squared error of the predicted velocity: velocity_error() of `prediction` and `target`, with its
// weights and masks.
class VelocityMse final : public lb::Loss {
 public:
  static constexpr const char* reads[] = {"prediction", "target",  "sigma?",
                                          "timestep?",  "weight?", "mask?"};

  using Options = LevelWeight;

  explicit VelocityMse(const Options& options) : options_(options) {}

  lb::Tensor loss(const lb::Step& step, const lb::Batch& values) override;

 private:
  Options options_;
};

}  // namespace basics
