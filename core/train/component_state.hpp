// SPDX-License-Identifier: Apache-2.0
// The state of components within the state of a run.
#pragma once

#include <string>

#include "core/checkpoint/state.hpp"
#include "core/train/memory_state.hpp"

namespace limbeck {

// Names of a checkpoint for everything in `state`: `prefix` and the component's own names; batches
// keep their tensors under "<name>/<n>". [control]
void put_state(SnapshotWriter& writer, const std::string& prefix, const MemoryState& state);

// What put_state() wrote under `prefix`, into an empty state. Throws Error(kData). [control]
void get_state(SnapshotReader& reader, const std::string& prefix, MemoryState& state);

}  // namespace limbeck
