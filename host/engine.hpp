// SPDX-License-Identifier: Apache-2.0
// The half of limbeck that has libtorch in it, opened when there is work for it: everything that
// can be said without it has been said by then.
#pragma once

#include "core/manifest/manifest.hpp"
#include "core/plugin/registry.hpp"
#include "core/train/job.hpp"

namespace limbeck::host {

// Lets plugins that share libtorch open it before a manifest is known.
void open_on_demand(Registry& registry);

// Reads the manifest, opens liblimbeck.so with the threads the manifest asks for, and runs `job`,
// whose manifest, registry and version are filled in here. Signals ask it to stop.
// Throws Error.
void run(Job job, const std::filesystem::path& config, const ManifestOptions& options);

// Opens liblimbeck.so, with one thread: for child processes that then need not open it each.
void open_engine();
// Tries a component: see ComponentTrial. For a process of its own.
void try_component(ComponentTrial& trial);

}  // namespace limbeck::host
