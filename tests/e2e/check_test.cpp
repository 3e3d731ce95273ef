// SPDX-License-Identifier: Apache-2.0
// `limbeck check`: its stages, the plan of memory against what a step takes, and what a run leaves
// behind about itself.
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "program.hpp"

#include <doctest/doctest.h>

using namespace limbeck::testing;

namespace {

namespace fs = std::filesystem;

const std::string kTinyManifest = "tests/e2e/tiny_sft.toml";

bool prints(const Outcome& outcome, const std::string& text) {
  return outcome.output.find(text) != std::string::npos;
}

Outcome run_check(const std::string& manifest,
                  const std::string& stage,
                  const std::vector<std::string>& settings = {}) {
  std::vector<std::string> arguments = {"check", manifest, "--dry-run=" + stage};
  for (const auto& setting : settings) {
    arguments.insert(arguments.end(), {"--set", setting});
  }
  return run_limbeck(arguments);
}

std::string clips_setting() { return "training.data.data_path=\"" + clips().string() + "\""; }

// The size at the end of the row that begins with `name`, in MiB; 0: there is none.
double mib(const Outcome& outcome, const std::string& name) {
  const auto row = outcome.output.find("\n  " + name);
  if (row == std::string::npos) {
    return 0;
  }
  const auto end = outcome.output.find('\n', row + 1);
  const std::string line = outcome.output.substr(row + 1, end - row - 1);
  const auto unit = line.rfind(' ');
  const auto number = line.rfind(' ', unit - 1);
  const double value = std::strtod(line.c_str() + number, nullptr);
  const std::string name_of_unit = line.substr(unit + 1);
  return name_of_unit == "GiB"   ? value * 1024
         : name_of_unit == "KiB" ? value / 1024
         : name_of_unit == "B"   ? value / 1024 / 1024
                                 : value;
}

}  // namespace

TEST_CASE("check: each stage looks at more") {
  const TempFolder folder;
  const std::string no_data = "training.data.data_path=\"" + folder / "none" + "\"";
  const std::string no_weights = "models.student.init_from=\"" + folder / "none" + "\"";

  const auto parsed = run_check(kTinyManifest, "parse", {no_data, no_weights});
  CHECK(parsed.exit_code == 0);
  CHECK(prints(parsed, "is a valid manifest; its files were not looked at"));
  CHECK(run_check(kTinyManifest, "parse", {"run.sed=1"}).exit_code == 2);

  const auto without_weights = run_check(kTinyManifest, "plan", {clips_setting(), no_weights});
  CHECK(without_weights.exit_code == 2);
  CHECK(prints(without_weights, "models.student.init_from: no such folder"));
  const auto without_data = run_check(kTinyManifest, "plan", {no_data});
  CHECK(without_data.exit_code == 4);
  CHECK(prints(without_data, folder / "none"));

  // A folder without weights in it is found when they are read.
  fs::create_directories(folder / "empty");
  const std::string empty = "models.student.init_from=\"" + folder / "empty" + "\"";
  CHECK(run_check(kTinyManifest, "plan", {clips_setting(), empty}).exit_code == 0);
  const auto loaded = run_check(kTinyManifest, "load", {clips_setting(), empty});
  CHECK(loaded.exit_code == 4);
  CHECK(prints(loaded, "memory of one process"));  // what was found before is shown
}

TEST_CASE("check: no stage writes anything") {
  const TempFolder folder;
  const auto outcome =
      run_limbeck({"train", kTinyManifest, "--dry-run=step", "--override-output-dir",
                   folder / "out", "--set", clips_setting()});
  CHECK_MESSAGE(outcome.exit_code == 0, outcome.output);
  CHECK(!fs::exists(folder / "out"));
}

TEST_CASE("check: the plan of memory is what a step takes") {
  for (const std::string& manifest : {kTinyManifest, std::string("configs/quickstart.toml")}) {
    CAPTURE(manifest);
    std::vector<std::string> settings = {clips_setting()};
    if (manifest != kTinyManifest) {
      settings.emplace_back("models.judge.init_from=\"\"");
      settings.emplace_back("run.threads=1");
    }
    const auto outcome = run_check(manifest, "step", settings);
    REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.output);
    const double planned = mib(outcome, "total");
    const double measured = mib(outcome, "measured peak");
    CAPTURE(outcome.output);
    REQUIRE(measured > 0);
    CHECK(std::abs(planned - measured) < 0.1 * measured);
  }
}

TEST_CASE("check: the activations of a plan are those of its batch and its recompute") {
  const auto activations = [](const std::vector<std::string>& more) {
    std::vector<std::string> settings = {clips_setting()};
    settings.insert(settings.end(), more.begin(), more.end());
    const auto outcome = run_check("configs/quickstart.toml", "plan", settings);
    REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.output);
    return mib(outcome, "activations of a step");
  };
  const std::string judge = "models.judge.init_from=\"\"";
  const double once = activations({judge});
  CHECK(once > 1);
  const double twice = activations({judge, "training.data.train_batch_size=32"});
  CHECK(twice > 1.8 * once);
  CHECK(twice < 2.2 * once);
  const double recomputed =
      activations({judge, "models.student.enable_gradient_checkpointing_type=\"full\""});
  CHECK(recomputed < 0.7 * once);
}

// 23 GB of weights, moments and averages are planned without them.
TEST_CASE("check: a network that is larger than the machine is planned") {
  const auto outcome =
      run_check("configs/wan2.1-t2v-1.3b-sft.toml", "plan",
                {clips_setting(), "models.student.init_from=\"\"",
                 "models.student.config.in_channels=4", "models.student.config.out_channels=4",
                 "models.student.config.text_dim=32", "models.student.config.text_len=0",
                 "training.data.num_latent_t=6", "training.data.num_frames=0"});
  REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.output);
  CAPTURE(outcome.output);
  CHECK(prints(outcome, "student"));
  const double total = mib(outcome, "total");
  CHECK(total > 5 * 1.41e9 * 4 / 1048576);
  CHECK(total < 5 * 1.45e9 * 4 / 1048576 + 2000);
  CHECK(mib(outcome, "activations of a step") > 1);
}

TEST_CASE("check: the manifest of Wan 2.1 1.3B is valid, and its weights and data are missing") {
  const auto parsed = run_check("configs/wan2.1-t2v-1.3b-sft.toml", "parse");
  CHECK_MESSAGE(parsed.exit_code == 0, parsed.output);
  CHECK(!prints(parsed, "warning"));
  const auto planned = run_check("configs/wan2.1-t2v-1.3b-sft.toml", "plan");
  CHECK(planned.exit_code == 2);
  CHECK(prints(planned, "no such folder"));
}

TEST_CASE("check: every manifest in configs/ is valid and gives no warning") {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(LIMBECK_SOURCE_DIR "/configs")) {
    if (entry.path().extension() == ".toml") {
      const auto outcome = run_check(entry.path(), "parse");
      CHECK_MESSAGE(outcome.exit_code == 0, outcome.output);
      CHECK_MESSAGE(!prints(outcome, "warning"), outcome.output);
      ++count;
    }
  }
  CHECK(count >= 3);
}

TEST_CASE("check: a shape that does not fit is found before anything is trained") {
  const auto outcome =
      run_check(kTinyManifest, "plan", {clips_setting(), "models.student.config.text_dim=48"});
  CHECK(outcome.exit_code != 0);
  CHECK(prints(outcome, "while rehearsing a step with shapes alone"));
  CHECK(prints(outcome, "while running role 'student'"));
}

TEST_CASE("check: frames that do not fit the latents are told with the right number") {
  const std::vector<std::string> sizes = {clips_setting(), "training.data.num_latent_t=6"};
  auto right = sizes;
  right.emplace_back("training.data.num_frames=6");  // this VAE keeps every frame
  CHECK(run_check(kTinyManifest, "plan", right).exit_code == 0);
  auto wrong = sizes;
  wrong.emplace_back("training.data.num_frames=21");
  const auto outcome = run_check(kTinyManifest, "plan", wrong);
  CHECK(outcome.exit_code == 2);
  CHECK(prints(outcome, "training.data.num_frames: expected 6"));
}

TEST_CASE("check: the keys that other trainers have for hooks and methods arrive there") {
  const auto outcome = run_limbeck(
      {"check", kTinyManifest, "--print-config", "--set", "training.data.training_cfg_rate=0.3",
       "--set", "training.model.logit_std=0.5", "--set", "training.model.precondition_outputs=true",
       "--set", "training.data.preprocessed_data_type=t2v"});
  REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.output);
  CHECK(prints(outcome, "logit_std = 0.5  # --set"));
  CHECK(prints(outcome, "precondition_outputs = true  # --set"));
  CHECK(prints(outcome, "sample_type = \"t2v\"  # --set"));
  CHECK(prints(outcome, "rate = 0.3  # tests/e2e/tiny_sft.toml:33:8"));
  const auto conflict = run_check(kTinyManifest, "parse", {"training.data.training_cfg_rate=0.2"});
  CHECK(conflict.exit_code == 2);
  CHECK(prints(conflict, "are two names of one setting and have different values"));
}

TEST_CASE("record: a run leaves its resolved manifest and what it was made of") {
  const TempFolder folder;
  const auto outcome =
      run_limbeck({"train", kTinyManifest, "--override-output-dir", folder / "out", "--set",
                   clips_setting(), "--set", "training.loop.max_train_steps=1"});
  REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.output);
  // Said at the start, in the units that people count in.
  CHECK(prints(outcome, "16 a step, "));
  CHECK(prints(outcome, " batches an epoch; 1 steps are 0.0 epochs"));

  const auto record = nlohmann::json::parse(read_text(folder / "out/run.json"));
  CHECK(record.at("outcome") == "finished");
  CHECK(record.at("seed") == 3);
  CHECK(record.at("threads") == 1);
  CHECK(record.at("plugins").size() == 5);
  CHECK(record.at("plugins")[0].at("id") == "org.limbeck.wan");
  CHECK(record.at("plugins")[0].at("sha256").get<std::string>().size() == 64);
  CHECK(record.at("data").at("fingerprint").get<std::string>().size() == 16);
  CHECK(record.at("data").at("samples") > 100);
  CHECK(record.at("command")[1] == "train");
  CHECK(record.at("limbeck").contains("version"));
  CHECK(record.at("libtorch").get<std::string>().starts_with("torch="));
  CHECK(record.at("ended").get<std::string>() >= record.at("started").get<std::string>());
  CHECK(record.at("machine").at("memory_bytes") > 0);

  // The resolved manifest is the same run.
  const auto again = run_limbeck(
      {"train", folder / "out/config.resolved.toml", "--override-output-dir", folder / "again"});
  REQUIRE_MESSAGE(again.exit_code == 0, again.output);
  CHECK(metric(folder / "again/metrics.jsonl", "loss") ==
        metric(folder / "out/metrics.jsonl", "loss"));
  const std::string weights = "/export/student/transformer/diffusion_pytorch_model.safetensors";
  CHECK((read_text(folder / ("again" + weights)) == read_text(folder / ("out" + weights))));
}

TEST_CASE("record: a run that fails says so") {
  const TempFolder folder;
  const auto outcome =
      run_limbeck({"train", kTinyManifest, "--override-output-dir", folder / "out", "--set",
                   clips_setting(), "--set", "training.optimizer.learning_rate=1e30"});
  CHECK(outcome.exit_code == 5);
  const auto record = nlohmann::json::parse(read_text(folder / "out/run.json"));
  CHECK(record.at("outcome") == "failed");
  CHECK(record.at("error").get<std::string>().find("is not finite") != std::string::npos);
}
