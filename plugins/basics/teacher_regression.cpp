// SPDX-License-Identifier: Apache-2.0
#include "basics/teacher_regression.hpp"

namespace basics {

lb::Tensor TeacherRegression::loss(const lb::Step& step, const lb::Batch& values) {
  const lb::Tensor target = teacher_.velocity(step, values, values["noisy"], values["timestep"]);
  return velocity_error(values["velocity"], "velocity", target, "velocity of the teacher", values,
                        level_);
}

}  // namespace basics
