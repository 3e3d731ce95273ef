// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <vector>

#include "core/base/error.hpp"
#include "core/optim/schedule.hpp"

#include <doctest/doctest.h>

using limbeck::lr_multiplier;
using limbeck::OptimizerSpec;

namespace {

// w = 10, horizon = 110, lr = 1e-4, at these updates.
constexpr int64_t kUpdates[] = {0, 1, 5, 9, 10, 11, 35, 60, 85, 109, 110, 111, 200};

struct Golden {
  const char* name;
  double argument;  // cycles, min_lr_ratio or power
  std::vector<double> values;
};

OptimizerSpec spec_of(const Golden& golden) {
  OptimizerSpec spec;
  spec.learning_rate = 1e-4;
  spec.lr_scheduler = golden.name;
  spec.lr_warmup_steps = 10;
  spec.lr_num_cycles = static_cast<int64_t>(golden.argument);
  spec.lr_power = golden.argument;
  spec.min_lr_ratio = golden.argument;
  return spec;
}

const std::vector<Golden> kGoldens = {
    {"constant_with_warmup", 1, {0, .1, .5, .9, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
    {"linear", 1, {0, .1, .5, .9, 1, .99, .75, .5, .25, .01, 0, 0, 0}},
    {"cosine", 1, {0, .1, .5, .9, 1, .999753, .853553, .5, .146447, .000247, 0, 0, 0}},
    {"cosine_with_restarts",
     1,
     {0, .1, .5, .9, 1, .999753, .853553, .5, .146447, .000247, 0, 0, 0}},
    {"cosine_with_restarts",
     3,
     {0, .1, .5, .9, 1, .997781, .146447, .5, .853553, .002219, 0, 0, 0}},
    {"cosine_with_min_lr", .1, {0, .1, .5, .9, 1, .999753, .853553, .5, .146447, .1, .1, .1, .1}},
    {"cosine_with_min_lr", .5, {0, .1, .5, .9, 1, .999753, .853553, .5, .5, .5, .5, .5, .5}},
    {"polynomial", 1, {0, .1, .5, .9, 1, .99001, .75025, .5005, .25075, .01099, .001, .001, .001}},
    {"polynomial",
     2,
     {0, .1, .5, .9, 1, .98012, .562937, .25075, .063437, .0011, .001, .001, .001}},
};

double worst(const Golden& golden, const OptimizerSpec& spec) {
  double error = 0;
  for (size_t i = 0; i < std::size(kUpdates); ++i) {
    error = std::max(error, std::abs(lr_multiplier(spec, kUpdates[i], 110) - golden.values[i]));
  }
  return error;
}

}  // namespace

TEST_CASE("schedule: every schedule gives its golden multipliers") {
  for (const auto& golden : kGoldens) {
    CAPTURE(golden.name);
    CHECK(worst(golden, spec_of(golden)) < 6e-7);
  }
}

TEST_CASE("schedule: a warm-up that is one update shorter does not pass for the golden one") {
  for (const auto& golden : kGoldens) {
    CAPTURE(golden.name);
    auto spec = spec_of(golden);
    spec.lr_warmup_steps = 9;
    CHECK(worst(golden, spec) > 1e-2);
  }
}

TEST_CASE("schedule: constant ignores warm-up") {
  OptimizerSpec spec;
  spec.lr_warmup_steps = 10;

  CHECK(lr_multiplier(spec, 0, 100) == 1.0);
  CHECK(lr_multiplier(spec, 200, 100) == 1.0);
}

TEST_CASE("schedule: piecewise thresholds are absolute update numbers") {
  OptimizerSpec spec;
  spec.lr_scheduler = "piecewise_constant";
  spec.step_rules = "1:10,0.1:20,0.01";

  CHECK(lr_multiplier(spec, 0, 100) == 1.0);
  CHECK(lr_multiplier(spec, 9, 100) == 1.0);
  CHECK(lr_multiplier(spec, 10, 100) == 0.1);
  CHECK(lr_multiplier(spec, 19, 100) == 0.1);
  CHECK(lr_multiplier(spec, 20, 100) == 0.01);
}

TEST_CASE("schedule: rules without a last multiplier are refused") {
  OptimizerSpec spec;
  spec.lr_scheduler = "piecewise_constant";
  for (const char* rules : {"", "1:10", "1:10,", "0.5,1:10", "x:10,1", "1:y,1"}) {
    CAPTURE(rules);
    spec.step_rules = rules;
    CHECK_THROWS_AS(lr_multiplier(spec, 0, 100), limbeck::Error);
  }
}

TEST_CASE("schedule: an unknown name is refused") {
  OptimizerSpec spec;
  spec.lr_scheduler = "cosin";
  CHECK_THROWS_AS(lr_multiplier(spec, 0, 100), limbeck::Error);
}
