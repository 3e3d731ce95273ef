// SPDX-License-Identifier: Apache-2.0
// Timing of small things. Each bench first checks that what it times is right.
#pragma once

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace limbeck::bench {

// One line of a table: the best time of a call, and what it is compared with.
struct Row {
  std::string name;
  std::string size;
  double seconds = 0;
  double baseline_seconds = 0;  // the same work otherwise; 0: nothing to compare with
  double rate = 0;              // in `unit`; 0: none
  std::string unit;
};

// The fastest of many calls of `work`, after warm-up: it runs for about 0.3 s, at least ten times.
template <class Work>
double best_seconds(const Work& work) {
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
  work();
  work();
  double best = 1e9;
  const auto begin = Clock::now();
  for (int64_t i = 0; i < 10 || seconds(Clock::now() - begin) < 0.3; ++i) {
    const auto start = Clock::now();
    work();
    best = std::min(best, seconds(Clock::now() - start));
  }
  return best;
}

inline void require(bool holds, const std::string& what) {
  if (!holds) {
    throw std::runtime_error("wrong result, so no time: " + what);
  }
}

// Fused operators, forward and backward, against the same formula of ATen operators; products.
std::vector<Row> ops(const std::vector<std::string>& sizes);
// One pass of AdamW and EMA over 50 million parameters, in bytes per second, and the bandwidth of
// memory as two kinds of plain loops reach it.
std::vector<Row> optimizer();
// What crossing into a plugin costs: an operator by its handle, a unit by its body.
std::vector<Row> boundary();

}  // namespace limbeck::bench
