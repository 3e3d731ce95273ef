// SPDX-License-Identifier: Apache-2.0
#include <limbeck/plugin.hpp>

#include "dmd2.hpp"

LB_PLUGIN(lb::method<dmd2::Dmd2>(
    "dmd2",
    "Distillation by distribution matching into a student of a few steps.\n\n"
    "The student's samples move along the difference of what `teacher` and `critic` make of them; "
    "`critic` learns to denoise the student's samples at the same time. Needs no videos with "
    "`rollout_mode = \"simulate\"`."))
