// SPDX-License-Identifier: Apache-2.0
// How fast a run is: docs/metrics.md has every metric with its formula.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "core/base/profile.hpp"

namespace limbeck {

// What a network says it did in one forward, over all its samples: the entries "work.<name>" of
// its outputs (docs/abi/capabilities.md). What it leaves out is 0.
struct ForwardWork {
  double flops = 0;        // floating-point operations of matrix products and attention, 2 for a
                           // multiply-add
  double tokens = 0;       // queries
  double frames = 0;       // latent frames
  double pairs = 0;        // of query and key that attention looks at, in one head of one layer
  double dense_pairs = 0;  // the same if every query saw every key
};

// How a forward was run, as far as its cost depends on it.
struct ForwardMode {
  bool has_gradient = false;    // its output has history
  bool trains_weights = false;  // and weights are differentiated, not inputs alone
  bool recomputes = false;      // and the forward is repeated in backward
};

// Useful work in forwards: 1 without gradient; 2 with the gradient of inputs alone; 3 with that of
// weights too. Recompute is not useful.
double useful_forwards(const ForwardMode& mode);
// The same with recompute, which is one more.
double executed_forwards(const ForwardMode& mode);

// Counts the forwards of a step. [control]
class Performance {
 public:
  struct Setup {
    int64_t world = 1;                  // ranks
    int64_t data_ranks = 1;             // of these, groups with samples of their own
    std::optional<double> peak_tflops;  // of one device, in the compute dtype; empty: unknown
  };
  explicit Performance(const Setup& setup) : setup_(setup) {}

  void add_forward(const std::string& role, const ForwardWork& work, const ForwardMode& mode);

  struct Step {
    double seconds = 0;   // from before the first batch until metrics are on the host
    int64_t samples = 0;  // of this rank
    profile::Seconds parts{};
    std::optional<int64_t> peak_memory;  // bytes; empty: not asked in this step
  };
  // The metrics of the step; begins the next one.
  std::map<std::string, double> take_metrics(const Step& step);
  // Forgets what was counted: forwards between steps are nobody's.
  void clear() { roles_.clear(); }

 private:
  struct Counts {
    int64_t calls = 0;
    int64_t with_gradient = 0;
    double useful_flops = 0;
    double executed_flops = 0;
    ForwardWork work;
  };

  Setup setup_;
  std::map<std::string, Counts> roles_;
};

// Where the forwards of this process are counted; null: nowhere. [control]
void count_forwards_in(Performance* performance);
// Adds one there. [control]
void count_forward(const std::string& role, const ForwardWork& work, const ForwardMode& mode);

}  // namespace limbeck
