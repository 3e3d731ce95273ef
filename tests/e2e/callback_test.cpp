// SPDX-License-Identifier: Apache-2.0
// What a callback from outside can do to a run, and what validation must not do to it.
#include <filesystem>
#include <string>
#include <vector>

#include "program.hpp"

#include <doctest/doctest.h>

using namespace limbeck::testing;

namespace {

namespace fs = std::filesystem;

Outcome train_tiny(const std::string& output,
                   const std::vector<std::string>& settings,
                   const std::vector<std::string>& options = {}) {
  std::vector<std::string> arguments = {"train",
                                        "tests/e2e/tiny_sft.toml",
                                        "--override-output-dir",
                                        output,
                                        "--set",
                                        "training.data.data_path=\"" + clips().string() + "\""};
  for (const auto& setting : settings) {
    arguments.insert(arguments.end(), {"--set", setting});
  }
  arguments.insert(arguments.end(), options.begin(), options.end());
  return run_limbeck(arguments);
}

bool shows(const Outcome& outcome, const std::string& text) {
  return outcome.output.find(text) != std::string::npos;
}

// The callback that `limbeck plugin new --kind callback` writes: it stops a run whose loss is above
// its limit, and says so as a warning.
std::vector<std::string> guarded(const std::string& limit) {
  return {
      "plugins=[\"wan\", \"sft\", \"basics\", \"parquet\", \"quickstart\", "
      "\"" LIMBECK_TEST_PLUGIN_DIR "/templates/template_callback_cpp.so\"]",
      "callbacks.my_plugin={ limit = " + limit + " }"};
}

}  // namespace

TEST_CASE(
    "callback: one from outside reads the loss and ends the run, whose weights are exported") {
  const TempFolder folder;
  const auto stopped = train_tiny(folder / "low", guarded("1e-6"));
  REQUIRE_MESSAGE(stopped.exit_code == 0, stopped.output);
  CHECK(shows(stopped, "a callback ended the run after step 1"));
  const auto losses = metric(folder / "low/metrics.jsonl", "loss");
  CHECK(losses.size() == 1);
  CHECK(fs::exists(folder / "low/export/student/transformer"));

  const auto whole = train_tiny(folder / "high", guarded("1e6"));
  REQUIRE_MESSAGE(whole.exit_code == 0, whole.output);
  CHECK(metric(folder / "high/metrics.jsonl", "loss").size() == 4);
  CHECK(metric(folder / "high/metrics.jsonl", "my_plugin/highest_loss").front() == losses.front());
}

TEST_CASE("callback: lines that a plugin logs are shown by the program's level") {
  const TempFolder folder;
  const std::string line = ": stopping";
  const auto shown = train_tiny(folder / "a", guarded("1e-6"), {"--log-level", "warn"});
  CHECK_MESSAGE(shows(shown, line), shown.output);
  CHECK(shows(shown, "warning my_plugin: the loss is "));
  CHECK_FALSE(shows(train_tiny(folder / "b", guarded("1e-6"), {"--log-level", "error"}), line));
}

TEST_CASE("callback: validation between steps leaves the training as it is") {
  const TempFolder folder;
  const std::vector<std::string> validated = {
      "models.text_encoder={ type = \"digit_table\" }",
      "callbacks.validation={ every_steps = 1, prompts = [\"digit 3\"], sampling_steps = 2, "
      "latent_shape = [4, 6, 4, 8], guidance_scale = 2.0 }"};
  const auto with = train_tiny(folder / "with", validated);
  REQUIRE_MESSAGE(with.exit_code == 0, with.output);
  const auto without = train_tiny(folder / "without", {});
  REQUIRE_MESSAGE(without.exit_code == 0, without.output);
  CHECK(metric(folder / "with/metrics.jsonl", "validation/2_steps_video_count").size() >= 4);
  CHECK(metric(folder / "with/metrics.jsonl", "loss") ==
        metric(folder / "without/metrics.jsonl", "loss"));
  const std::string weights = "/export/student/transformer/diffusion_pytorch_model.safetensors";
  CHECK((read_text(folder / ("with" + weights)) == read_text(folder / ("without" + weights))));
}

// Something that grows by 20 kB in every step would be seen. The cache of the data set, which fills
// during the first epoch, is kept small.
TEST_CASE("callback: a run with validation needs no more memory after many steps") {
  const TempFolder folder;
  const auto outcome = train_tiny(
      folder / "run",
      {"models.text_encoder={ type = \"digit_table\" }",
       "callbacks.validation={ every_steps = 20, prompts = [\"digit 3\"], sampling_steps = 2, "
       "latent_shape = [4, 6, 4, 8] }",
       "training.data.cache_mb=1", "training.loop.max_train_steps=400"});
  REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.output);
  const auto peaks = metric(folder / "run/metrics.jsonl", "mem/peak_rss_gib");
  REQUIRE(peaks.size() == 400);
  CHECK(peaks[399] > 0);
  CHECK((peaks[399] - peaks[199]) * 1024 < 4.0);
}
