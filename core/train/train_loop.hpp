// SPDX-License-Identifier: Apache-2.0
// The loop of a training run.
#pragma once

#include <filesystem>
#include <optional>

#include <nlohmann/json.hpp>

#include "core/train/profile_window.hpp"
#include "core/train/run.hpp"

namespace limbeck {

// Trains up to max_train_steps, or until a stop is asked for, and exports the weights.
// `checkpoint`: a verified one to go on from; empty: from step 1. `profile`: steps to record.
// Throws Error; Error(kCancelled) when a stop was asked for or the time is over, after a last
// checkpoint, or the export if none are written. [control]
void train(Run& run,
           const nlohmann::ordered_json& plugins,
           const std::optional<std::filesystem::path>& checkpoint,
           const ProfileSteps& profile = {});

}  // namespace limbeck
