// SPDX-License-Identifier: Apache-2.0
#include "basics/kl_reference.hpp"

#include <limbeck/diffusion/predict.hpp>

namespace basics {

void KlReference::check(const lb::Models& models) const {
  if (options_.reference == "role") {
    if (!models.has(kReference)) {
      throw lb::Error(LB_INVALID_ARGUMENT,
                      "reference = \"role\" needs a frozen network in the role \"reference\", and "
                      "there is none: add [models.reference], or set reference = \"base\" for a "
                      "student with adapters");
    }
    return;
  }
  if (models.has(kReference)) {
    throw lb::Error(LB_INVALID_ARGUMENT,
                    "reference = \"base\" does not read [models.reference]: remove that table, or "
                    "set reference = \"role\"");
  }
  if (!models.has(kStudent)) {
    throw lb::Error(LB_INVALID_ARGUMENT,
                    "reference = \"base\" needs the trained network in the role \"student\": name "
                    "it with roles = { student = \"...\" }");
  }
  if (!models.has(kStudent, "limbeck.adapters/1")) {
    throw lb::Error(LB_INVALID_ARGUMENT,
                    "reference = \"base\" is the student with its adapters off, and it has none: "
                    "set models.student.lora.enable = true, or set reference = \"role\" and add "
                    "[models.reference]");
  }
}

lb::Tensor KlReference::loss(const lb::Step& step, const lb::Batch& values) {
  check(step.models());
  const bool is_base = options_.reference == "base";
  const lb::Tensor expected = lb::diffusion::predict_velocity(
      step.models(), is_base ? kStudent : kReference, values, values["noisy"], values["timestep"],
      is_base ? LB_RUN_BASE : LB_RUN_NO_GRAD);
  return velocity_error(values["velocity"], "velocity", expected, "velocity of the reference",
                        values, options_.level);
}

}  // namespace basics
