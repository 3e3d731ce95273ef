// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limbeck/loss.hpp>

#include "basics/guided_teacher.hpp"
#include "basics/velocity_error.hpp"

namespace basics {

// Knowledge distillation: velocity_error() of the trained network's velocity and that of a frozen
// teacher on the same mixture at the same level, with its guidance. The student learns to predict
// with one pass what the teacher needs two for.
class TeacherRegression final : public lb::Loss {
 public:
  static constexpr lb_role needs[] = {kTeacherRole, kTextEncoderRole};
  static constexpr const char* reads[] = {"velocity", "noisy",   "timestep", "context?",
                                          "sigma?",   "weight?", "mask?"};

  struct Options {
    GuidedTeacher::Options teacher;
    LevelWeight level;

    template <class V>
    void visit(V& v) {
      teacher.visit(v);
      level.visit(v);
    }
  };

  explicit TeacherRegression(const Options& options)
      : teacher_(options.teacher), level_(options.level) {}

  lb::Tensor loss(const lb::Step& step, const lb::Batch& values) override;

 private:
  GuidedTeacher teacher_;
  LevelWeight level_;
};

}  // namespace basics
