// SPDX-License-Identifier: Apache-2.0
// The loop of a training run.
#pragma once

#include "core/train/profile_window.hpp"
#include "core/train/run.hpp"

namespace limbeck {

// Trains from step 1 to max_train_steps, or until a stop is asked for, and exports the weights.
// `profile`: steps to record. Throws Error; Error(kCancelled) when a stop was asked for, after the
// export. [control]
void train(Run& run, const ProfileSteps& profile = {});

}  // namespace limbeck
