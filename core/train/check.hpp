// SPDX-License-Identifier: Apache-2.0
// `limbeck check`: everything that can be known of a run without training it.
#pragma once

#include <string>

#include "core/train/job.hpp"
#include "core/train/run.hpp"

namespace limbeck {

// What a run does, in lines for a person: roles, samples, epochs, steps.
std::string describe_run(const Run& run);

// Goes as far as job.stage says and writes a report of what it found to *job.report, also when it
// then throws Error. Writes no file. [control]
void check_run(const Job& job);

}  // namespace limbeck
