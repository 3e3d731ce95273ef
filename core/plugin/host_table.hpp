// SPDX-License-Identifier: Apache-2.0
// The lb_host that every plugin is given: errors, logging, the user's wish to stop, and the
// services (tables of functions by id) that parts of the host provide.
#pragma once

#include <limbeck/abi.h>

#include "core/base/export.hpp"

namespace limbeck {

// One per process; lives as long as it. "limbeck.config/1" is provided from the start. [any]
LIMBECK_API const lb_host& host_table();

// Makes a service available under its id ("limbeck.tensor/1"). Both are kept, not copied. The
// first table of an id stays: a plugin may have asked for it. [any]
LIMBECK_API void provide(const char* id, const void* table);

// What poll_stop answers from now on: an lb_stop. It never goes back to less. Async-signal-safe.
LIMBECK_API void request_stop(int how) noexcept;
LIMBECK_API lb_stop stop_requested() noexcept;  // [any]
// For tests: as if nobody had asked.
LIMBECK_API void forget_stop() noexcept;

// The tag of the libtorch that this host is built with, byte for byte what a plugin that shares
// it must have.
LIMBECK_API const char* host_torch_tag();
// Of limbeck: "0.1.0".
LIMBECK_API const char* version();

}  // namespace limbeck
