// SPDX-License-Identifier: Apache-2.0
#include "core/track/performance.hpp"

#include <utility>

namespace limbeck {
namespace {

constexpr double kTera = 1e12;
constexpr double kGibi = 1024.0 * 1024.0 * 1024.0;

Performance* counter = nullptr;

}  // namespace

double useful_forwards(const ForwardMode& mode) {
  if (!mode.has_gradient) {
    return 1;
  }
  return mode.trains_weights ? 3 : 2;
}

double executed_forwards(const ForwardMode& mode) {
  return useful_forwards(mode) + (mode.has_gradient && mode.recomputes ? 1 : 0);
}

void Performance::add_forward(const std::string& role,
                              const ForwardWork& work,
                              const ForwardMode& mode) {
  auto& counts = roles_[role];
  ++counts.calls;
  counts.with_gradient += mode.has_gradient ? 1 : 0;
  counts.useful_flops += useful_forwards(mode) * work.flops;
  counts.executed_flops += executed_forwards(mode) * work.flops;
  counts.work.tokens += work.tokens;
  counts.work.frames += work.frames;
  counts.work.pairs += work.pairs;
  counts.work.dense_pairs += work.dense_pairs;
}

std::map<std::string, double> Performance::take_metrics(const Step& step) {
  const auto roles = std::exchange(roles_, {});
  const double t = step.seconds;
  const auto everywhere = static_cast<double>(setup_.data_ranks);
  const double per_device = everywhere / static_cast<double>(setup_.world) / (t * kTera);
  const auto part = [&](profile::Part which) { return step.parts[static_cast<size_t>(which)]; };

  std::map<std::string, double> metrics = {
      {"perf/steps_per_sec", 1 / t},
      {"perf/samples_per_sec", everywhere * static_cast<double>(step.samples) / t},
      {"perf/data_wait_sec", part(profile::Part::kData)},
      {"perf/forward_sec", part(profile::Part::kForward)},
      {"perf/backward_sec", part(profile::Part::kBackward)},
      {"perf/optimizer_sec", part(profile::Part::kOptimizer)},
  };
  if (step.peak_memory.has_value()) {
    metrics["mem/peak_rss_gib"] = static_cast<double>(*step.peak_memory) / kGibi;
  }
  Counts all;
  for (const auto& [name, counts] : roles) {
    const auto prefix = "perf/role/" + name + "/";
    metrics[prefix + "forward_calls"] = static_cast<double>(counts.calls);
    metrics[prefix + "backward_forwards"] = static_cast<double>(counts.with_gradient);
    if (counts.useful_flops > 0) {
      metrics[prefix + "estimated_tflops_per_gpu"] = per_device * counts.useful_flops;
    }
    all.calls += counts.calls;
    all.useful_flops += counts.useful_flops;
    all.executed_flops += counts.executed_flops;
    all.work.tokens += counts.work.tokens;
    all.work.frames += counts.work.frames;
    all.work.pairs += counts.work.pairs;
    all.work.dense_pairs += counts.work.dense_pairs;
  }
  metrics["perf/model_forward_calls"] = static_cast<double>(all.calls);
  if (all.work.tokens > 0) {
    metrics["perf/query_tokens_per_sec"] = everywhere * all.work.tokens / t;
  }
  if (all.work.frames > 0) {
    metrics["perf/query_latent_frames_per_sec"] = everywhere * all.work.frames / t;
  }
  if (all.work.dense_pairs > 0) {
    metrics["perf/attention_density"] = all.work.pairs / all.work.dense_pairs;
  }
  if (all.useful_flops > 0) {
    const double useful = per_device * all.useful_flops;
    const double executed = per_device * all.executed_flops;
    metrics["perf/estimated_tflops_per_gpu"] = useful;
    metrics["perf/executed_tflops_per_gpu"] = executed;
    if (setup_.peak_tflops.has_value()) {
      metrics["perf/peak_tflops_per_gpu"] = *setup_.peak_tflops;
      metrics["perf/estimated_mfu"] = useful / *setup_.peak_tflops;
      metrics["perf/estimated_hfu"] = executed / *setup_.peak_tflops;
    }
  }
  return metrics;
}

void count_forwards_in(Performance* performance) { counter = performance; }

void count_forward(const std::string& role, const ForwardWork& work, const ForwardMode& mode) {
  if (counter != nullptr) {
    counter->add_forward(role, work, mode);
  }
}

}  // namespace limbeck
