// SPDX-License-Identifier: Apache-2.0
// How the ranks of a run are arranged, and which part of a sharded range is whose. All sizes in
// core go through here, also in a world of one.
#pragma once

#include <cstdint>

namespace limbeck {

// replicate x shard x sequence ranks; sequence is the fastest. Ranks of one sequence group see
// the same samples; the others are data-parallel.
struct Mesh {
  int64_t replicate = 1;
  int64_t shard = 1;
  int64_t sequence = 1;
  int64_t rank = 0;

  int64_t world() const { return replicate * shard * sequence; }
  // Data-parallel groups, and this rank's place among them.
  int64_t data_size() const { return replicate * shard; }
  int64_t data_rank() const { return rank / sequence; }
  int64_t shard_rank() const { return data_rank() % shard; }

  // A flat range of `size` elements is padded to a multiple of shard() and cut into equal parts;
  // a cut may fall inside a tensor.
  int64_t padded(int64_t size) const { return (size + shard - 1) / shard * shard; }
  int64_t part(int64_t size) const { return padded(size) / shard; }
};

}  // namespace limbeck
