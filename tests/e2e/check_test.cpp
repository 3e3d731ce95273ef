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
#include "sample_writer.hpp"

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
  const std::string no_data = "training.data.data_path=\"" + folder / "no_clips" + "\"";
  const std::string no_weights = "models.student.init_from=\"" + folder / "none" + "\"";

  const auto parsed = run_check(kTinyManifest, "parse", {no_data, no_weights});
  CHECK(parsed.exit_code == 0);
  CHECK(prints(parsed, "is a valid manifest; its files were not looked at"));
  CHECK(run_check(kTinyManifest, "parse", {"run.sed=1"}).exit_code == 2);

  const auto without_weights = run_check(kTinyManifest, "plan", {clips_setting(), no_weights});
  CHECK(without_weights.exit_code == 2);
  CHECK(prints(without_weights, "models.student.init_from: no such folder"));
  CHECK(prints(without_weights, "memory of one process"));  // which does without them
  CHECK(mib(without_weights, "activations of a step") > 1);
  CHECK(!prints(without_weights, "is valid"));
  const auto without_data = run_check(kTinyManifest, "plan", {no_data});
  CHECK(without_data.exit_code == 4);
  CHECK(prints(without_data, folder / "no_clips"));
  CHECK(prints(without_data, "activations are not known: the data cannot be opened"));
  // Both faults are told, and the training does not begin without weights.
  const auto without_both = run_check(kTinyManifest, "step", {no_data, no_weights});
  CHECK(without_both.exit_code == 2);
  CHECK(prints(without_both, "no such folder"));
  CHECK(prints(without_both, folder / "no_clips"));
  const auto training =
      run_limbeck({"train", kTinyManifest, "--override-output-dir", folder / "out", "--set",
                   clips_setting(), "--set", no_weights});
  CHECK(training.exit_code == 2);
  CHECK(!fs::exists(folder / "out"));
  // Without weights the manifest has to say what network it is.
  const auto without_config =
      run_check("configs/quickstart.toml", "plan",
                {clips_setting(), "models.judge.init_from=\"\"",
                 "models.student={ type = \"wan\", init_from = \"" + folder / "none" + "\" }"});
  CHECK(without_config.exit_code == 2);
  CHECK(prints(without_config, "no such folder"));
  CHECK(!prints(without_config, "memory of one process"));

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
  const std::string data = clips_setting();
  const std::string parquet = "callbacks.parquet_writer.data_path=\"" + clips().string() + "\"";
  const std::string judge = "models.judge.init_from=\"\"";
  const std::string full = "models.student.enable_gradient_checkpointing_type=\"full\"";
  const std::string quickstart = "configs/quickstart.toml";
  const std::pair<std::string, std::vector<std::string>> variants[] = {
      {kTinyManifest, {data}},
      {"configs/quickstart-judge.toml", {parquet}},
      {quickstart, {data, judge}},
      {quickstart, {data, judge, "training.data.train_batch_size=128"}},
      {quickstart, {data, judge, "models.student.config.num_layers=10"}},
      {quickstart, {data, judge, full}},
      {quickstart, {data, judge, full, "training.data.train_batch_size=128"}},
  };
  for (auto [manifest, settings] : variants) {
    settings.emplace_back("run.threads=1");
    const auto outcome = run_check(manifest, "step", settings);
    REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.output);
    const double planned = mib(outcome, "total");
    const double measured = mib(outcome, "measured peak");
    CAPTURE(outcome.output);
    REQUIRE(measured > 0);
    CHECK(std::abs(planned - measured) < 0.1 * measured);
  }
}

// Recomputed units take and free blocks of many sizes, and what was freed does not fit again.
TEST_CASE("check: a plan counts what the heap keeps between blocks in use") {
  const auto outcome = run_check(
      "configs/quickstart.toml", "plan",
      {clips_setting(), "models.judge.init_from=\"\"", "training.data.train_batch_size=128",
       "models.student.enable_gradient_checkpointing_type=\"full\""});
  REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.output);
  CHECK(mib(outcome, "kept between blocks in use") > 20);
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
TEST_CASE("check: Wan 2.1 1.3B is planned without its weights, on clips of 81 x 480 x 832") {
  const TempFolder folder;
  {
    parquet_data::SampleWriter writer(folder / "clips", {});
    const std::vector<float> latent(16 * 21 * 60 * 104);
    const std::vector<float> text(20 * 4096);
    parquet_data::VideoRow row;
    row.id = "a";
    row.latent = {{16, 21, 60, 104}, latent.data()};
    row.text = {{20, 4096}, text.data()};
    row.caption = "a clip";
    writer.add(row);
    writer.finish();
  }
  const std::string config = "configs/wan2.1-t2v-1.3b-sft.toml";
  const std::string data = "training.data.data_path=\"" + folder / "clips" + "\"";
  const auto full = run_check(config, "plan", {data});
  CAPTURE(full.output);
  CHECK(full.exit_code == 2);
  CHECK(prints(full, "models.student.init_from: no such folder"));
  constexpr double kParameters = 1418996800;  // of the published weights
  CHECK(prints(full, "1418996800 parameters, trained"));
  const double roles = 5 * kParameters * 4 / 1048576;
  CHECK(mib(full, "total") > roles);
  // Kept by full recompute: the tokens, 21 * 30 * 52 of width 1536, for each of 30 blocks.
  constexpr double kTokens = 21.0 * 30 * 52;
  const double kept = 30 * kTokens * 1536 * 4 / 1048576;
  CHECK(mib(full, "activations of a step") > kept);
  CHECK(mib(full, "activations of a step") < 2.5 * kept);  // and one block

  const auto none = run_check(config, "plan",
                              {data, "models.student.enable_gradient_checkpointing_type=\"none\""});
  CHECK(mib(none, "activations of a step") > 8 * kept);
}

TEST_CASE("check: the manifest of Wan 2.1 1.3B has a plan when nothing is there") {
  const auto parsed = run_check("configs/wan2.1-t2v-1.3b-sft.toml", "parse");
  CHECK_MESSAGE(parsed.exit_code == 0, parsed.output);
  CHECK(!prints(parsed, "warning"));
  const auto planned = run_check("configs/wan2.1-t2v-1.3b-sft.toml", "plan");
  CAPTURE(planned.output);
  CHECK(planned.exit_code == 2);
  CHECK(prints(planned, "student"));
  CHECK(prints(planned, "more than"));
  CHECK(prints(planned, "models.student.init_from: no such folder"));
}

// Wan is trained with one shift and sampled with it: a third of the steps are elsewhere otherwise.
TEST_CASE("check: different shifts of the noise schedule give one warning") {
  const TempFolder folder;
  const std::string weights = folder / "weights/transformer";
  fs::create_directories(weights);
  write_text(folder / "weights/scheduler/scheduler_config.json", "{\"flow_shift\": 3.0}");
  const std::string from = "models.student.init_from=\"" + weights + "\"";
  const std::string validation =
      "callbacks.validation={ flow_shift = 5, prompts = [\"digit 1\"], every_steps = 1 }";
  const auto warning = [](const std::vector<std::string>& settings) -> std::string {
    const auto outcome = run_check(kTinyManifest, "parse", settings);
    CHECK_MESSAGE(outcome.exit_code == 0, outcome.output);
    const auto at = outcome.output.find("different flow_shift values: ");
    CHECK(outcome.output.find("different flow_shift", at + 1) == std::string::npos);
    return at == std::string::npos
               ? ""
               : outcome.output.substr(at, outcome.output.find(": a network", at) - at);
  };
  CHECK(warning({from}).empty());
  CHECK(warning({"prepare.0.flow_shift=3.0", from}).empty());
  CHECK(warning({"prepare.0.flow_shift=5"}) ==
        "different flow_shift values: prepare[0].flow_shift 5, pipeline.flow_shift 3");
  CHECK(warning({validation}) ==
        "different flow_shift values: callbacks.validation.flow_shift 5, pipeline.flow_shift 3");
  CHECK(warning({from, "pipeline.flow_shift=8"}) ==
        "different flow_shift values: pipeline.flow_shift 8, " + folder / "weights" +
            "/scheduler/scheduler_config.json 3");
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
