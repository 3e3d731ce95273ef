// SPDX-License-Identifier: Apache-2.0
// What a person can see of a run, through the real program.
#include <cmath>
#include <csignal>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "program.hpp"

#include <doctest/doctest.h>

using namespace limbeck::testing;

namespace {

namespace fs = std::filesystem;

std::vector<std::string> tiny(const std::string& command,
                              const std::string& output,
                              const std::vector<std::string>& settings = {}) {
  std::vector<std::string> arguments = {command,
                                        "tests/e2e/tiny_sft.toml",
                                        "--override-output-dir",
                                        output,
                                        "--set",
                                        "training.data.data_path=\"" + clips().string() + "\""};
  for (const auto& setting : settings) {
    arguments.insert(arguments.end(), {"--set", setting});
  }
  return arguments;
}

// With a network for text and a callback that samples.
std::vector<std::string> sampling(const std::string& command,
                                  const std::string& output,
                                  const std::vector<std::string>& arguments) {
  auto all = tiny(
      command, output,
      {"models.text_encoder.type=\"digit_table\"", "callbacks.validation.latent_shape=[4, 6, 4, 8]",
       "callbacks.validation.sampling_steps=2", "callbacks.validation.seed=5"});
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

Outcome run_well(const std::vector<std::string>& arguments) {
  auto outcome = run_limbeck(arguments);
  REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.output);
  return outcome;
}

int count_of(const std::string& text, const std::string& part) {
  int found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

std::vector<nlohmann::json> lines_of(const fs::path& jsonl) {
  std::vector<nlohmann::json> lines;
  std::istringstream text(read_text(jsonl));
  for (std::string line; std::getline(text, line);) {
    lines.push_back(nlohmann::json::parse(line));
  }
  return lines;
}

}  // namespace

TEST_CASE("observation: operations of a step are those of its closed form") {
  // 16 clips of 6 x 2 x 4 tokens, 4 text tokens, width 24, inner width 48, 2 blocks.
  const double q = 48;
  const double c = 4;
  const double d = 24;
  const double forward = 2 * 16 *
                         (8 * q * d * d + 4 * q * q * d + 4 * q * d * d + 4 * c * d * d +
                          4 * q * c * d + 4 * q * d * 48);
  const auto check = [&](const std::vector<std::string>& settings, double calls, double executed) {
    const TempFolder folder;
    run_well(tiny("train", folder / "out", settings));
    const auto steps = lines_of(folder / "out/metrics.jsonl");
    REQUIRE(steps.size() == 4);
    for (const auto& step : steps) {
      const auto number = [&](const char* name) { return step.at(name).get<double>(); };
      const double seconds = number("step_time_sec");
      CHECK(number("perf/estimated_tflops_per_gpu") * seconds * 1e12 ==
            doctest::Approx(3 * forward));
      CHECK(number("perf/executed_tflops_per_gpu") * seconds * 1e12 ==
            doctest::Approx(executed * forward));
      CHECK(number("perf/estimated_mfu") ==
            doctest::Approx(number("perf/estimated_tflops_per_gpu") / 0.5));
      CHECK(number("perf/role/student/forward_calls") == calls);
      CHECK(number("perf/role/student/backward_forwards") == calls);
      CHECK(number("perf/samples_per_sec") * seconds == doctest::Approx(16));
      CHECK(number("perf/query_tokens_per_sec") * seconds == doctest::Approx(16 * q));
      CHECK(number("perf/query_latent_frames_per_sec") * seconds == doctest::Approx(16 * 6));
      CHECK(number("perf/attention_density") == 1);
      CHECK(number("train/samples") == 16 * number("step"));
      CHECK(number("updates/student") == number("step"));
      CHECK(number("perf/data_wait_sec") > 0);
      CHECK(number("mem/peak_rss_gib") > 0.01);
    }
  };
  const std::string peak = "training.performance.peak_tflops_per_gpu=0.5";
  check({peak}, 1, 3);
  check({peak, "models.student.enable_gradient_checkpointing_type=\"full\""}, 1, 4);
  check({peak, "training.data.train_batch_size=8", "training.loop.gradient_accumulation_steps=2"},
        2, 3);
}

TEST_CASE("observation: learning rates count updates, whatever the accumulation") {
  const auto rates = [](const std::string& accumulation) {
    const TempFolder folder;
    run_well(
        tiny("train", folder / "out",
             {"training.loop.max_train_steps=10", "training.data.train_batch_size=2",
              "training.optimizer.lr_scheduler=\"linear\"", "training.optimizer.lr_warmup_steps=4",
              "training.loop.gradient_accumulation_steps=" + accumulation}));
    return metric(folder / "out/metrics.jsonl", "lr/student");
  };
  const auto one = rates("1");
  REQUIRE(one.size() == 10);
  for (size_t n = 0; n < 10; ++n) {
    const auto k = static_cast<double>(n);
    CHECK(one[n] == doctest::Approx(1e-3 * (n < 4 ? k / 4 : 1 - (k - 4) / 6)));
  }
  CHECK(rates("3") == one);
}

TEST_CASE("observation: trackers and pictures that cannot be written do not stop the run") {
  const TempFolder folder;
  fs::create_directories(folder / "out");
  fs::create_symlink("/dev/full", folder / "out/metrics.jsonl");
  write_text(folder / "out/validation", "a file where a folder should be");
  auto arguments = sampling("train", folder / "out", {});
  arguments.insert(arguments.end(), {"--set", "callbacks.validation.prompts=[\"digit 3\"]"});
  const auto outcome = run_well(arguments);
  CHECK(count_of(outcome.output, "No space left on device") == 1);
  // Four steps, and the numbers of the validation before them.
  CHECK(outcome.output.find("tracker 'jsonl' lost 5 of 5 records") != std::string::npos);
  CHECK(outcome.output.find("cannot write '") != std::string::npos);
  CHECK(fs::exists(folder / "out/export/student"));
}

TEST_CASE("observation: a stopped run has told its trackers every step") {
  const TempFolder folder;
  const auto outcome = signal_limbeck(
      tiny("train", folder / "out", {"training.loop.max_train_steps=100000"}), "step 2/", SIGTERM);
  CHECK(outcome.exit_code == 130);
  const auto at = outcome.output.find("stopped after step ");
  REQUIRE(at != std::string::npos);
  const auto stopped =
      std::stoul(outcome.output.substr(at + std::string("stopped after step ").size()));
  const auto steps = lines_of(folder / "out/metrics.jsonl");
  REQUIRE(steps.size() == stopped);
  CHECK(steps.back().at("step") == stopped);
}

TEST_CASE("observation: a profile has a box for every part of a step") {
  const TempFolder folder;
  auto arguments = sampling("train", folder / "out", {"--profile=2-3"});
  arguments.insert(arguments.end(), {"--set", "callbacks.validation.prompts=[\"digit 3\"]", "--set",
                                     "callbacks.validation.every_steps=2"});
  const auto outcome = run_well(arguments);
  const auto trace = nlohmann::json::parse(read_text(folder / "out/profile.json"));
  std::map<std::string, int> boxes;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") {
      ++boxes[event.at("cat").get<std::string>() + " " + event.at("name").get<std::string>()];
    }
  }
  CHECK(boxes["step step"] == 2);
  CHECK(boxes["round round"] == 2);
  CHECK(boxes["micro-step micro-step"] == 2);
  CHECK(boxes["data data"] == 2);
  CHECK(boxes["hook flow_noise"] == 2);
  CHECK(boxes["hook text_dropout"] == 2);
  CHECK(boxes["hook velocity_mse"] == 2);
  CHECK(boxes["method sft"] == 2);
  CHECK(boxes["forward student"] == 2 + 2);  // two of training, two of the sampler
  CHECK(boxes["forward text_encoder"] >= 1);
  CHECK(boxes["backward backward"] == 2);
  CHECK(boxes["optimizer optimizer"] == 2);
  CHECK(boxes["callback validation"] == 1);
  CHECK(boxes["tracker jsonl"] >= 2);

  const auto table = read_text(folder / "out/profile.txt");
  CHECK(table.find("in 2 steps from step 2") != std::string::npos);
  CHECK(table.find("backward\n") != std::string::npos);
  CHECK(outcome.output.find(table.substr(0, table.find('\n'))) != std::string::npos);
}

TEST_CASE("observation: every run says where its time went") {
  const TempFolder folder;
  const auto outcome = run_well(tiny("train", folder / "out"));
  CHECK(outcome.output.find(" s: data ") != std::string::npos);
  CHECK_FALSE(fs::exists(folder / "out/profile.json"));
}

TEST_CASE("observation: a callback that reads what the data does not have is refused") {
  const TempFolder folder;
  const auto outcome =
      run_limbeck(tiny("check", folder / "out",
                       {"models.text_encoder.type=\"digit_table\"",
                        "callbacks.parquet_writer.data_path=\"" + (folder / "again") + "\""}));
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.output.find("callbacks.parquet_writer reads 'pixels' of the training data") !=
        std::string::npos);
}

TEST_CASE("sample: shows what validation shows") {
  const TempFolder folder;
  run_well(sampling("train", folder / "out",
                    {"--set", "training.loop.max_train_steps=1", "--set",
                     "callbacks.validation.prompts=[\"digit 3\", \"digit 8\"]"}));
  run_well(sampling("sample", folder / "unused",
                    {"--prompt", "digit 3", "--prompt", "digit 8", "--output", folder / "first"}));
  const auto first = read_text(folder / "first/samples.png");
  // The weights that a run begins with are those that are made without any.
  CHECK((first == read_text(folder / "out/validation/step_0.png")));
  CHECK(fs::exists(folder / "first/000_digit_3.gif"));
  CHECK(fs::exists(folder / "first/001_digit_8.png"));

  // Trained weights, twice.
  const std::vector<std::string> trained = {
      "--weights", folder / "out/export/student", "--prompt", "digit 3", "--prompt", "digit 8",
      "--output"};
  auto arguments = trained;
  arguments.push_back(folder / "second");
  run_well(sampling("sample", folder / "unused", arguments));
  arguments.back() = folder / "third";
  run_well(sampling("sample", folder / "unused", arguments));
  CHECK((read_text(folder / "second/samples.png") == read_text(folder / "third/samples.png")));
  CHECK((read_text(folder / "second/samples.png") != first));
}

TEST_CASE("sample: without a callback that can, an error says which one") {
  const TempFolder folder;
  auto arguments = tiny("sample", folder / "out");
  arguments.insert(arguments.end(), {"--prompt", "digit 3", "--output", folder / "pictures"});
  const auto outcome = run_limbeck(arguments);
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.output.find("add a callback that provides limbeck.sample/1") != std::string::npos);
}
