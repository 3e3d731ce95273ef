// SPDX-License-Identifier: Apache-2.0
// The performance metrics against closed forms.
#include "core/track/performance.hpp"

#include <doctest/doctest.h>

using doctest::Approx;
using limbeck::ForwardMode;
using limbeck::Performance;

namespace {

constexpr ForwardMode kQuiet{};
constexpr ForwardMode kTrained{true, true, false};
constexpr ForwardMode kInputsOnly{true, false, false};
constexpr ForwardMode kRecomputed{true, true, true};

}  // namespace

TEST_CASE("performance: a forward costs 1, 2 with gradients of inputs, 3 with those of weights") {
  CHECK(limbeck::useful_forwards(kQuiet) == 1);
  CHECK(limbeck::useful_forwards(kInputsOnly) == 2);
  CHECK(limbeck::useful_forwards(kTrained) == 3);
  CHECK(limbeck::useful_forwards(kRecomputed) == 3);
  CHECK(limbeck::executed_forwards(kTrained) == 3);
  CHECK(limbeck::executed_forwards(kRecomputed) == 4);
  CHECK(limbeck::executed_forwards({false, true, true}) == 1);
}

TEST_CASE("performance: two roles of one process") {
  Performance performance({1, 1, 2.0});
  // 4 tera-operations in a step of 2 s: the teacher 1 x 1, the student 3 x 1.
  performance.add_forward("teacher", {1e12, 100, 4, 50, 100}, kQuiet);
  performance.add_forward("student", {1e12, 100, 4, 100, 100}, kRecomputed);
  const auto metrics = performance.take_metrics({2.0, 6, {0.1, 0.5, 0.75, 0.25}, int64_t{3} << 30});
  CHECK(metrics.at("perf/steps_per_sec") == 0.5);
  CHECK(metrics.at("perf/samples_per_sec") == 3);
  CHECK(metrics.at("perf/model_forward_calls") == 2);
  CHECK(metrics.at("perf/query_tokens_per_sec") == 100);
  CHECK(metrics.at("perf/query_latent_frames_per_sec") == 4);
  CHECK(metrics.at("perf/attention_density") == 0.75);
  CHECK(metrics.at("perf/estimated_tflops_per_gpu") == Approx(2));
  CHECK(metrics.at("perf/executed_tflops_per_gpu") == Approx(2.5));
  CHECK(metrics.at("perf/peak_tflops_per_gpu") == 2);
  CHECK(metrics.at("perf/estimated_mfu") == Approx(1));
  CHECK(metrics.at("perf/estimated_hfu") == Approx(1.25));
  CHECK(metrics.at("perf/role/teacher/forward_calls") == 1);
  CHECK(metrics.at("perf/role/teacher/backward_forwards") == 0);
  CHECK(metrics.at("perf/role/teacher/estimated_tflops_per_gpu") == Approx(0.5));
  CHECK(metrics.at("perf/role/student/backward_forwards") == 1);
  CHECK(metrics.at("perf/role/student/estimated_tflops_per_gpu") == Approx(1.5));
  CHECK(metrics.at("perf/data_wait_sec") == 0.1);
  CHECK(metrics.at("perf/forward_sec") == 0.5);
  CHECK(metrics.at("perf/backward_sec") == 0.75);
  CHECK(metrics.at("perf/optimizer_sec") == 0.25);
  CHECK(metrics.at("mem/peak_rss_gib") == 3);

  // The next step starts from nothing.
  const auto next = performance.take_metrics({1.0, 0, {}, {}});
  CHECK(next.at("perf/model_forward_calls") == 0);
  CHECK(next.count("mem/peak_rss_gib") == 0);  // not asked
}

TEST_CASE("performance: micro-steps add up, and forwards between steps are nobody's") {
  Performance performance({1, 1, {}});
  performance.add_forward("student", {1e12, 1, 1, 1, 1}, kQuiet);  // a validation
  performance.clear();
  performance.add_forward("student", {1e12, 10, 2, 9, 9}, kTrained);
  performance.add_forward("student", {1e12, 10, 2, 9, 9}, kTrained);
  const auto metrics = performance.take_metrics({1.0, 4, {}, {}});
  CHECK(metrics.at("perf/model_forward_calls") == 2);
  CHECK(metrics.at("perf/query_tokens_per_sec") == 20);
  CHECK(metrics.at("perf/estimated_tflops_per_gpu") == Approx(6));
  // A peak that nobody knows gives no ratio.
  CHECK(metrics.count("perf/peak_tflops_per_gpu") == 0);
  CHECK(metrics.count("perf/estimated_mfu") == 0);
}

TEST_CASE("performance: ranks that share a sequence count its samples once") {
  // 8 ranks, 2 to a sequence: 4 groups of samples. A rank counts the whole forward of its samples.
  Performance performance({8, 4, {}});
  performance.add_forward("student", {8e12, 100, 4, 1, 1}, kQuiet);
  const auto metrics = performance.take_metrics({1.0, 3, {}, {}});
  CHECK(metrics.at("perf/samples_per_sec") == 12);
  CHECK(metrics.at("perf/query_tokens_per_sec") == 400);
  CHECK(metrics.at("perf/query_latent_frames_per_sec") == 16);
  CHECK(metrics.at("perf/estimated_tflops_per_gpu") == Approx(4));
  CHECK(metrics.at("perf/model_forward_calls") == 1);
}

TEST_CASE("performance: of a network that does not say what it did, calls are counted") {
  Performance performance({1, 1, 100.0});
  performance.add_forward("vae", {}, kQuiet);
  const auto metrics = performance.take_metrics({1.0, 1, {}, {}});
  CHECK(metrics.at("perf/role/vae/forward_calls") == 1);
  CHECK(metrics.count("perf/role/vae/estimated_tflops_per_gpu") == 0);
  CHECK(metrics.count("perf/estimated_tflops_per_gpu") == 0);
  CHECK(metrics.count("perf/estimated_mfu") == 0);
  CHECK(metrics.count("perf/query_tokens_per_sec") == 0);
  CHECK(metrics.count("perf/attention_density") == 0);
}

TEST_CASE("performance: forwards are counted where they should be, or nowhere") {
  Performance performance({1, 1, {}});
  limbeck::count_forward("student", {}, kQuiet);  // nobody counts
  limbeck::count_forwards_in(&performance);
  limbeck::count_forward("student", {}, kQuiet);
  limbeck::count_forwards_in(nullptr);
  limbeck::count_forward("student", {}, kQuiet);
  CHECK(performance.take_metrics({1.0, 1, {}, {}}).at("perf/model_forward_calls") == 1);
}
