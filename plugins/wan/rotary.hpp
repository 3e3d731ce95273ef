// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding over frames, rows and columns (Wan 2.1 transformer).
//
// The d channels of a head are d/2 pairs (2j, 2j+1). They are shared out among the three axes:
// 2 floor(d/6) channels each for rows and columns, the rest, first, for frames. Pair j of an axis
// with a channels turns by position * 10000^(-2j/a).
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include <limbeck/tensor.hpp>

namespace wan {

// Tokens of a clip: frames, rows, columns, in this order of significance.
struct Geometry {
  int64_t frames = 0;
  int64_t rows = 0;
  int64_t columns = 0;

  int64_t tokens() const { return frames * rows * columns; }
};

// Tables of angles, made once for each geometry and dtype. [control]
class RotaryTables {
 public:
  // `head_dim` is even; positions go up to `max_positions` on each axis.
  RotaryTables(int64_t head_dim, int64_t max_positions)
      : head_dim_(head_dim), max_positions_(max_positions) {}

  // [tokens, head_dim / 2, 2]: cosine and sine of every pair's angle. Throws lb::Error for a clip
  // that is too long.
  lb::Tensor get(const Geometry& geometry, lb_dtype dtype);

 private:
  int64_t head_dim_;
  int64_t max_positions_;
  std::map<std::array<int64_t, 4>, lb::Tensor> tables_;
};

}  // namespace wan
