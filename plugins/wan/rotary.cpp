// SPDX-License-Identifier: Apache-2.0
#include "rotary.hpp"

#include <cmath>
#include <string>
#include <vector>

namespace wan {
namespace {

constexpr double kBase = 10000.0;

// Appends cosine and sine of one axis' pairs at `position`.
void add_axis(std::vector<double>& row, int64_t channels, int64_t position) {
  for (int64_t j = 0; j < channels / 2; ++j) {
    const double frequency =
        1.0 / std::pow(kBase, static_cast<double>(2 * j) / static_cast<double>(channels));
    const double angle = static_cast<double>(position) * frequency;
    row.push_back(std::cos(angle));
    row.push_back(std::sin(angle));
  }
}

}  // namespace

lb::Tensor RotaryTables::get(const Geometry& geometry, lb_dtype dtype) {
  for (const auto length : {geometry.frames, geometry.rows, geometry.columns}) {
    if (length > max_positions_) {
      throw lb::Error(
          LB_INVALID_ARGUMENT,
          "a clip of " + std::to_string(geometry.frames) + " x " + std::to_string(geometry.rows) +
              " x " + std::to_string(geometry.columns) +
              " tokens is longer than rope_max_seq_len = " + std::to_string(max_positions_));
    }
  }
  auto& table = tables_[{geometry.frames, geometry.rows, geometry.columns, dtype}];
  if (!table.defined()) {
    const int64_t spatial = 2 * (head_dim_ / 6);
    std::vector<double> angles;
    angles.reserve(static_cast<size_t>(geometry.tokens() * head_dim_));
    for (int64_t frame = 0; frame < geometry.frames; ++frame) {
      for (int64_t row = 0; row < geometry.rows; ++row) {
        for (int64_t column = 0; column < geometry.columns; ++column) {
          add_axis(angles, head_dim_ - 2 * spatial, frame);
          add_axis(angles, spatial, row);
          add_axis(angles, spatial, column);
        }
      }
    }
    table = lb::tensor(angles, {geometry.tokens(), head_dim_ / 2, 2}).to(dtype);
  }
  return table;
}

}  // namespace wan
