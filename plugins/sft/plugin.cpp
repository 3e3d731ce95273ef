// SPDX-License-Identifier: Apache-2.0
#include <limbeck/plugin.hpp>

#include "fine_tuning.hpp"

LB_PLUGIN(lb::method<sft::FineTuning>(
    "sft",
    "Supervised fine-tuning by flow matching.\n\n"
    "Trains the role `student` on `latents` with the noise, noise levels and mixtures that a "
    "prepare hook such as `flow_noise` made. Without [[losses]] the loss is the mean squared "
    "error of the velocity."))
