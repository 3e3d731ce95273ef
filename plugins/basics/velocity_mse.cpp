// SPDX-License-Identifier: Apache-2.0
#include "basics/velocity_mse.hpp"

namespace basics {

lb::Tensor VelocityMse::loss(const lb::Step&, const lb::Batch& values) {
  return velocity_error(values["prediction"], "prediction", values["target"], "target", values,
                        options_);
}

}  // namespace basics
