// SPDX-License-Identifier: Apache-2.0
#include "core/train/check.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>

#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/train/checkpoints.hpp"
#include "core/train/memory_plan.hpp"
#include "core/train/rehearsal.hpp"
#include "core/train/run_state.hpp"

namespace limbeck {
namespace {

std::string format(const char* pattern, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), pattern, value);
  return text.data();
}

// "1500 samples of data set 'x', 16 a step: 93 steps an epoch, 1200 steps are 12.8 epochs"
std::string describe_data(const Run& run) {
  const auto& manifest = run.manifest;
  const int64_t steps = manifest.loop.max_train_steps;
  const int64_t batch = manifest.data->batch_size * run.mesh.data_size();
  const int64_t step = batch * manifest.loop.gradient_accumulation_steps;
  const int64_t epoch = run.loader->epoch_length();
  if (epoch < 0) {
    return cat("data: a stream, ", run.loader->title(), "; ", step, " samples a step");
  }
  // A batch never spans two epochs: what is left of one is not trained on in it.
  const int64_t batches = epoch / batch;
  const auto all = static_cast<double>(steps * manifest.loop.gradient_accumulation_steps);
  return cat("data: ", run.loader->title(), ", ", run.loader->length(), " samples",
             epoch == run.loader->length() ? "" : cat(", ", epoch, " an epoch"), "; ", step,
             " a step, ", batches, " batches an epoch; ", steps, " steps are ",
             format("%.1f", all / static_cast<double>(std::max<int64_t>(1, batches))), " epochs");
}

// Frames of a video as the network that encodes it counts them, when the manifest says both.
void check_frames(const Run& run) {
  const auto fact = [&](const char* name) {
    const auto found = run.manifest.facts.find(name);
    return found == run.manifest.facts.end() ? int64_t{0} : static_cast<int64_t>(found->second);
  };
  const int64_t latent = fact("data.num_latent_t");
  const int64_t frames = fact("data.num_frames");
  for (const auto& role : run.roles) {
    const auto ratio = static_cast<int64_t>(role->facts().number("temporal_ratio", 0.0));
    if (latent == 0 || frames == 0 || ratio == 0) {
      continue;
    }
    const int64_t expected = (latent - 1) * ratio + 1;
    if (frames != expected) {
      throw Error(
          Fault::kManifest,
          cat("training.data.num_frames: expected ", expected, ", for num_latent_t is ", latent,
              " and role '", role->name(), "' makes one latent frame of ", ratio, ", got ", frames),
          "leave num_frames out, or correct one of the two");
    }
  }
}

// Trains one step for nothing.
void try_step(Run& run, int64_t step) {
  run.runner->start();
  run.runner->run(step, [](uint32_t) {});
  for (const auto& [name, value] : run.metrics.take_numbers()) {
    log::debug("check", cat(name, " = ", shortest(value)));
  }
}

}  // namespace

std::string describe_run(const Run& run) {
  std::vector<std::string> lines;
  for (const auto& role : run.roles) {
    const auto& spec = role->spec();
    lines.push_back(cat("role '", role->name(), "': network '", spec.model.component->name(), "', ",
                        role->layout().parameter_count(), " parameters, ",
                        role->is_trained() ? "trained"
                        : spec.is_shadow   ? "average of '" + spec.shadow_of + "'"
                                           : "frozen"));
  }
  if (run.loader != nullptr) {
    lines.push_back(describe_data(run));
  }
  lines.push_back(cat("method '", run.method.spec().component->name(),
                      "': ", run.manifest.loop.max_train_steps, " steps"));
  return join(lines, "\n");
}

void check_run(const Job& job) {
  const Manifest& manifest = *job.manifest;
  const auto report = [&](const std::string& text) {
    if (job.report != nullptr) {
      *job.report = text;
    }
  };
  // Before anything has threads.
  Rehearsal rehearsal(manifest);
  std::optional<Run> run;
  try {
    run.emplace(manifest);
  } catch (const Error& error) {
    if (error.fault() == Fault::kData) {
      report(to_table(plan_roles(manifest, "the data cannot be opened"), 0));
    }
    if (manifest.missing.has_errors()) {
      log::error("check", error.what());  // the last error is about what is missing too
    }
    manifest.missing.throw_if_errors();
    throw;
  }
  check_frames(*run);
  check_folder(manifest, !manifest.checkpoint.resume_from.empty());
  const auto checkpoint = checkpoint_to_resume(manifest);
  const auto plan = plan_memory(*run, rehearsal);
  report(describe_run(*run) + "\n" + to_table(plan, 0));
  manifest.missing.throw_if_errors();
  int64_t step = 0;
  if (job.stage != CheckStage::kPlan) {
    run->load(checkpoint.has_value());
    if (checkpoint.has_value()) {
      step = RunState(*run, nlohmann::ordered_json::array()).load(*checkpoint).step;
    }
  }
  if (job.stage == CheckStage::kStep) {
    try_step(*run, step + 1);
    report(describe_run(*run) + "\n" + to_table(plan, peak_resident_bytes()));
  }
}

}  // namespace limbeck
