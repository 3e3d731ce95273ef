// SPDX-License-Identifier: Apache-2.0
// What `limbeck export` and `limbeck import` have in common.
#pragma once

#include <string>
#include <vector>

#include "core/transfer/component.hpp"

namespace limbeck::host {

// "bf16" as the files call it; "": nullptr. The command line has checked the word.
const WeightType* type_of(const std::string& dtype);

void print_written(const std::vector<WrittenFile>& files);

}  // namespace limbeck::host
