// SPDX-License-Identifier: Apache-2.0
// "limbeck.random/1": random numbers named by a key. Nothing is consumed, so there is no state
// to save, and a sample sees the same numbers however ranks and micro-steps share a batch.
//
// A draw's generator is Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as
// 1, 2, 3", SC 2011), keyed by a fold of SplitMix64 over (run seed, stream, purpose, step, index)
// and, for control draws, the micro-step. Row i of a noise draw is the sub-sequence with the
// number of its sample in the step's global batch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include <ATen/ATen.h>

#include <limbeck/abi.h>

namespace limbeck {

// What the draws of a process depend on besides their keys. Set before plugins run. [control]
struct RandomContext {
  uint64_t seed = 0;
  int64_t data_size = 1;  // data-parallel groups, and this process's place among them
  int64_t data_rank = 0;
};
void set_random_context(const RandomContext& context);

// From here on normal(), uniform() and integers() return recorded tensors, not generated ones, for
// comparisons with other programs: entries "<purpose>/<step>/<micro>/<index>" of a safetensors
// file. A draw that was not recorded is an error. An empty map ends it. [control]
void set_recorded_draws(std::map<std::string, at::Tensor> draws);

// The key's 64-bit seed, and float32 draws on the CPU for one sub-sequence of it; values do not
// depend on the number of threads.
uint64_t fold_key(const lb_key& key);
at::Tensor normal_values(uint64_t seed, uint64_t subsequence, at::IntArrayRef sizes);
at::Tensor uniform_values(uint64_t seed, uint64_t subsequence, at::IntArrayRef sizes);  // [0, 1)

const lb_random_api& random_api();

}  // namespace limbeck
