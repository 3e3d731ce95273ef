// SPDX-License-Identifier: Apache-2.0
// What leaves a run with adapters: a folder of PEFT, or whole weights with the adapters in them.
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "program.hpp"

#include <doctest/doctest.h>

using namespace limbeck::testing;

namespace {

namespace fs = std::filesystem;

class AdapterRuns {
 public:
  std::string train(const std::string& name, const std::vector<std::string>& settings) const {
    std::vector<std::string> arguments = {"train",
                                          "tests/e2e/tiny_sft.toml",
                                          "--override-output-dir",
                                          folder / name,
                                          "--set",
                                          "training.data.data_path=\"" + clips().string() + "\""};
    for (const auto& setting : settings) {
      arguments.insert(arguments.end(), {"--set", setting});
    }
    succeed(arguments);
    return folder / name;
  }

  std::string succeed(const std::vector<std::string>& arguments) const {
    const auto outcome = run_limbeck(arguments);
    REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.output);
    return outcome.output;
  }

  double first_loss(const std::string& name, const std::vector<std::string>& settings) const {
    auto all = settings;
    all.emplace_back("training.loop.max_train_steps=1");
    return metric(train(name, all) + "/metrics.jsonl", "loss").at(0);
  }

  TempFolder folder;
};

std::string init_from(const std::string& weights) {
  return "models.student.init_from=\"" + weights + "\"";
}

}  // namespace

TEST_CASE("adapters: a checkpoint gives the folder that the run wrote, and merged weights") {
  const AdapterRuns runs;
  const auto base = runs.train("base", {}) + "/export/student";
  const auto trained = runs.train(
      "trained", {init_from(base), "models.student.lora={enable=true, rank=4, alpha=6}",
                  "training.loop.max_train_steps=30", "training.optimizer.learning_rate=0.02",
                  "training.checkpoint.training_state_checkpointing_steps=30"});
  for (const std::string weights : {"live", "ema"}) {
    CAPTURE(weights);
    const auto own = trained + (weights == "live" ? "/export/student" : "/export/student-ema");
    const auto adapters = runs.folder / (weights + "-adapters");
    runs.succeed({"export", trained, "--role", "student", "--weights", weights, "--output-dir",
                  adapters, "--verify"});
    CHECK((read_text(adapters + "/adapter_model.safetensors") ==
           read_text(own + "/adapter_model.safetensors")));
    CHECK(read_text(adapters + "/adapter_config.json") == read_text(own + "/adapter_config.json"));

    const auto merged = runs.folder / (weights + "-merged");
    runs.succeed({"export", trained, "--role", "student", "--weights", weights, "--merged",
                  "--output-dir", merged, "--verify"});
    const double with_adapters =
        runs.first_loss(weights + "-1", {init_from(base), "models.student.lora.enable=true",
                                         "models.student.adapters=[\"" + adapters + "\"]"});
    const double with_merged = runs.first_loss(weights + "-2", {init_from(merged)});
    CHECK(with_merged == doctest::Approx(with_adapters).epsilon(5e-7));
    CHECK(with_merged !=
          doctest::Approx(runs.first_loss(weights + "-3", {init_from(base)})).epsilon(1e-4));
    // Merging again, from the folder of adapters' own run, gives the same bits.
    const auto again = runs.folder / (weights + "-again");
    runs.succeed({"export", trained + "/checkpoint-30", "--role", "student", "--weights", weights,
                  "--merged", "--base", base, "--output-dir", again});
    const std::string file = "/transformer/diffusion_pytorch_model.safetensors";
    CHECK((read_text(again + file) == read_text(merged + file)));
  }
  fs::remove_all(base);
  const auto outcome = run_limbeck(
      {"export", trained, "--role", "student", "--merged", "--output-dir", runs.folder / "lost"});
  CHECK(outcome.exit_code == 4);
  CHECK(outcome.output.find("the weights that role 'student' was trained on are not there") !=
        std::string::npos);
}
