// SPDX-License-Identifier: Apache-2.0
// How much memory one process needs for a training step, said before weights are allocated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/train/rehearsal.hpp"
#include "core/train/run.hpp"

namespace limbeck {

// Bytes that a role's flat buffers take.
struct RoleMemory {
  std::string name;
  int64_t parameters = 0;  // a count
  int64_t weights = 0;     // master or frozen weights, and state that is no weight
  int64_t gradients = 0;
  int64_t optimizer = 0;  // both moments
  int64_t average = 0;

  int64_t bytes() const { return weights + gradients + optimizer + average; }
};

RoleMemory memory_of(const Role& role);

// Bytes. Validation, exports and what a data set caches after its first batch are not in it.
struct MemoryPlan {
  std::vector<RoleMemory> roles;
  // Tensors of one step beside those of the roles, at their most; its batches too.
  std::optional<int64_t> activations;
  std::string unknown;    // why they are not known
  int64_t heap = 0;       // kept by the C library between blocks in use
  int64_t batches = 0;    // read ahead
  int64_t libraries = 0;  // code, plugins and what they keep: what this process has now
  int64_t kernels = 0;    // what computing adds to it

  int64_t total() const;
};

// What is known when a run cannot be created, `unknown` saying why: the buffers of its roles.
// Throws Error for a role that cannot be declared. [control]
MemoryPlan plan_roles(const Manifest& manifest, std::string unknown);

// The plan of a run that was created and not loaded. Reads the first batch. Throws the Error of a
// rehearsed step whose shapes do not fit. [control]
MemoryPlan plan_memory(Run& run, Rehearsal& rehearsal);

// A table for a person. `peak`: the memory that a step really took, in bytes; 0: none was run.
std::string to_table(const MemoryPlan& plan, int64_t peak);

// Bytes that this process has resident now, and the most it ever had. 0: not known.
int64_t resident_bytes();
int64_t peak_resident_bytes();

}  // namespace limbeck
