// SPDX-License-Identifier: Apache-2.0
// Runs of the real program that are stopped, killed and damaged, and go on with the bits of a run
// that never stopped.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "program.hpp"

#include <doctest/doctest.h>

using namespace limbeck::testing;

namespace {

namespace fs = std::filesystem;

// What a checkpoint must be exact for. A new method is one line.
struct Case {
  const char* manifest;
  std::vector<std::string> settings;
};
// A network that was trained a little: adapters of a fresh one, whose last layer is zero, would
// never get a gradient.
const std::string& trained() {
  static const TempFolder folder;
  static const std::string path = [] {
    const auto outcome =
        run_limbeck({"train", "tests/e2e/tiny_sft.toml", "--override-output-dir", folder / "out",
                     "--set", "training.data.data_path=\"" + clips().string() + "\""});
    REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.output);
    return folder / "out/export/student";
  }();
  return path;
}

const Case& sft() {
  static const Case sft = {"tests/e2e/tiny_sft.toml", {}};
  return sft;
}
std::vector<Case> cases() {
  return {sft(),
          {"tests/e2e/tiny_sft.toml",
           {"models.student.lora={enable=true, rank=2, alpha=4}",
            "models.student.init_from=\"" + trained() + "\""}},
          {"tests/e2e/tiny_dmd2.toml", {}}};
}

// How often random things are tried; scripts/soak asks for more.
int rounds() {
  const char* asked = std::getenv("LIMBECK_SOAK_ROUNDS");
  return asked == nullptr ? 20 : std::atoi(asked);
}

struct Setup {
  Case of;
  int64_t steps;
  std::string folder;
  std::vector<std::string> settings;

  std::vector<std::string> arguments(const std::string& resume) const {
    std::vector<std::string> all = {"train",
                                    of.manifest,
                                    "--override-output-dir",
                                    folder,
                                    "--set",
                                    "training.data.data_path=\"" + clips().string() + "\"",
                                    "--set",
                                    "training.loop.max_train_steps=" + std::to_string(steps),
                                    "--set",
                                    "training.checkpoint.training_state_checkpointing_steps=1"};
    for (const auto& setting : of.settings) {
      all.insert(all.end(), {"--set", setting});
    }
    for (const auto& setting : settings) {
      all.insert(all.end(), {"--set", setting});
    }
    if (!resume.empty()) {
      all.insert(all.end(), {"--resume-from-checkpoint", resume});
    }
    return all;
  }

  std::string checkpoint(int64_t step) const {
    return folder + "/checkpoint-" + std::to_string(step);
  }
};

Outcome train(const Setup& setup, const std::string& resume = "") {
  const auto outcome = run_limbeck(setup.arguments(resume));
  REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.output);
  return outcome;
}

// Everything that must be equal bit by bit when a run is over.
struct Result {
  std::string state;  // tensors and counters of the last checkpoint
  std::string weights;
  std::string averaged;
  std::vector<double> losses;
  std::vector<double> norms;

  bool operator==(const Result&) const = default;
};

// The weights of an export: of a network, or its adapters.
std::string weights_in(const std::string& folder) {
  const fs::path whole = folder + "/transformer/diffusion_pytorch_model.safetensors";
  return read_text(fs::exists(whole) ? whole : fs::path(folder) / "adapter_model.safetensors");
}

Result result_of(const Setup& setup) {
  const auto record =
      nlohmann::json::parse(read_text(setup.checkpoint(setup.steps) + "/limbeck.json"));
  return {read_text(setup.checkpoint(setup.steps) + "/dcp/__0_0.distcp") +
              record.at("data").dump() + record.at("samples").dump(),
          weights_in(setup.folder + "/export/student"),
          weights_in(setup.folder + "/export/student-ema"),
          metric(setup.folder + "/metrics.jsonl", "loss"),
          metric(setup.folder + "/metrics.jsonl", "grad_norm/student")};
}

void check_equal(const Result& a, const Result& b) {
  CHECK(a.losses == b.losses);
  CHECK(a.norms == b.norms);
  CHECK((a.state == b.state));
  CHECK((a.weights == b.weights));
  CHECK((a.averaged == b.averaged));
}

// A checkpoint with its metrics, in a folder of its own, as a run that ended there left them.
void copy_run(const Setup& from, int64_t step, const Setup& to) {
  fs::create_directories(to.folder);
  fs::copy(from.checkpoint(step), to.checkpoint(step), fs::copy_options::recursive);
  fs::copy_file(from.folder + "/metrics.jsonl", to.folder + "/metrics.jsonl");
}

}  // namespace

TEST_CASE("resume: at any step, with identical bits") {
  for (const auto& manifest : cases()) {
    CAPTURE(manifest.settings.size());
    const TempFolder folder;
    const Setup whole = {manifest, 22, folder / "whole", {}};
    train(whole);
    const auto expected = result_of(whole);
    REQUIRE(expected.losses.size() == 22);
    for (int64_t step = 1; step <= 20; ++step) {
      CAPTURE(step);
      const Setup again = {manifest, 22, folder / std::to_string(step), {}};
      copy_run(whole, step, again);
      train(again, "latest");
      check_equal(result_of(again), expected);
    }
    // A partner that must differ: moments that begin anew.
    const Setup other = {
        manifest, 22, folder / "other", {"training.checkpoint.no_load_optim=true"}};
    copy_run(whole, 20, other);
    train(other, "latest");
    CHECK((result_of(other).weights != expected.weights));
  }
}

TEST_CASE("resume: five times in a row") {
  for (const auto& manifest : cases()) {
    CAPTURE(manifest.settings.size());
    const TempFolder folder;
    const Setup whole = {manifest, 12, folder / "whole", {}};
    train(whole);
    Setup pieces = {manifest, 12, folder / "pieces", {}};
    for (const int64_t step : {2, 3, 7, 8, 11, 12}) {
      // The horizon of schedules is that of the whole run: it is stopped, not shortened.
      const auto outcome = step == 12
                               ? run_limbeck(pieces.arguments("latest"))
                               : signal_limbeck(pieces.arguments(step == 2 ? "" : "latest"),
                                                "step " + std::to_string(step) + "/", SIGTERM);
      CHECK(outcome.exit_code == (step == 12 ? 0 : 130));
    }
    check_equal(result_of(pieces), result_of(whole));
  }
}

TEST_CASE("resume: every signal that asks for an end leaves one complete checkpoint") {
  const TempFolder folder;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    CAPTURE(signal);
    Setup setup = {sft(), 100000, folder / std::to_string(signal), {}};
    setup.settings = {"training.checkpoint.training_state_checkpointing_steps=50000"};
    const auto outcome = signal_limbeck(setup.arguments(""), "step 3/", signal);
    CHECK(outcome.exit_code == 130);
    CHECK(outcome.output.find("go on with --resume-from-checkpoint latest") != std::string::npos);
    int checkpoints = 0;
    for (const auto& entry : fs::directory_iterator(setup.folder)) {
      checkpoints += entry.path().filename().string().starts_with("checkpoint-") ? 1 : 0;
    }
    CHECK(checkpoints == 1);
    CHECK_FALSE(fs::exists(setup.folder + "/export"));
  }
}

TEST_CASE("resume: other batch layouts go on at the same sample") {
  const auto& manifest = sft();
  const TempFolder folder;
  const Setup whole = {manifest, 8, folder / "whole", {}};
  train(whole);
  const Setup split = {
      manifest,
      8,
      folder / "split",
      {"training.data.train_batch_size=8", "training.loop.gradient_accumulation_steps=2"}};
  copy_run(whole, 4, split);
  train(split, "latest");
  const auto a = result_of(whole);
  const auto b = result_of(split);
  for (size_t i = 0; i < 8; ++i) {
    CHECK(b.losses[i] == doctest::Approx(a.losses[i]).epsilon(1e-6));
  }
  CHECK(b.weights != a.weights);  // other sums, other last bits
}

TEST_CASE("resume: killed at random moments, it ends with the bits of a run that was not") {
  const auto& manifest = sft();
  const std::vector<std::string> limit = {"training.checkpoint.checkpoints_total_limit=3"};
  const TempFolder folder;
  const Setup whole = {manifest, 60, folder / "whole", limit};
  const double seconds = train(whole).seconds;
  std::mt19937 random(11);
  const int kills = rounds();
  for (int done = 0; done < kills;) {
    const Setup killed = {manifest, 60, folder / "killed", limit};
    for (bool is_over = false; !is_over;) {
      // As often within the first saves as anywhere.
      const double when = std::uniform_real_distribution(0.2, 0.7)(random) * std::min(seconds, 1.5);
      const bool is_last = done >= kills;
      const auto outcome = is_last ? run_limbeck(killed.arguments("latest"))
                                   : kill_limbeck(killed.arguments("latest"), when);
      is_over = outcome.exit_code == 0;
      done += outcome.exit_code == 128 + SIGKILL ? 1 : 0;
      REQUIRE_MESSAGE((is_over || outcome.exit_code == 128 + SIGKILL), outcome.output);
    }
    check_equal(result_of(killed), result_of(whole));
    for (const auto& entry : fs::directory_iterator(killed.folder)) {
      CHECK(entry.path().extension() != ".unfinished");
    }
    fs::remove_all(killed.folder);
  }
}

TEST_CASE("resume: a damaged checkpoint is skipped or refused, never taken") {
  const auto& manifest = sft();
  const TempFolder folder;
  const Setup whole = {manifest, 3, folder / "whole", {}};
  train(whole);
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(whole.checkpoint(3))) {
    if (entry.is_regular_file()) {
      files.push_back(fs::relative(entry.path(), whole.folder));
    }
  }
  std::sort(files.begin(), files.end());
  std::mt19937 random(13);
  for (int round = 0; round < rounds(); ++round) {
    const Setup damaged = {manifest, 3, folder / "damaged", {}};
    fs::copy(whole.folder, damaged.folder, fs::copy_options::recursive);
    const auto path = damaged.folder / files[random() % files.size()];
    auto bytes = read_text(path);
    const size_t at = random() % bytes.size();
    if (round % 2 == 0) {
      bytes.resize(at);
    } else {
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
    }
    CAPTURE(path);
    CAPTURE(at);
    write_text(path, bytes);
    const auto outcome = run_limbeck(damaged.arguments("latest"));
    CHECK_MESSAGE(outcome.exit_code == 0, outcome.output);
    CHECK(outcome.output.find("skipped") != std::string::npos);
    CHECK(outcome.output.find("going on after step 2") != std::string::npos);
    check_equal(result_of(damaged), result_of(whole));
    fs::remove_all(damaged.folder);
  }
}

TEST_CASE("resume: what cannot be resumed is an error, and nothing is trained") {
  const auto& manifest = sft();
  const TempFolder folder;
  const auto refused = [&](const Setup& setup, const std::string& resume) {
    const auto outcome = run_limbeck(setup.arguments(resume));
    CHECK(outcome.exit_code == 4);
    CHECK(outcome.output.find("step 1/") == std::string::npos);
    return outcome.output;
  };
  const auto has = [](const std::string& text, const std::string& part) {
    CHECK_MESSAGE(text.find(part) != std::string::npos, text);
  };
  const Setup whole = {manifest, 2, folder / "whole", {}};
  train(whole);

  has(refused(whole, ""), "has checkpoints of an earlier run, the newest of step 2");
  has(refused(whole, folder / "nowhere"), "there is no checkpoint");

  auto other = whole;
  other.settings = {"run.seed=4"};
  has(refused(other, "latest"), "seed is 4, was 3");
  Setup allowed = {manifest,
                   3,
                   folder / "allowed",
                   {"run.seed=4", "training.checkpoint.allow_dataset_change=true"}};
  copy_run(whole, 2, allowed);
  has(train(allowed, "latest").output, "seed is 4, was 3");

  other.settings = {"models.student.config.num_layers=1"};
  has(refused(other, "latest"), "unexpected");
  other.settings = {"models.student.config.ffn_dim=96"};
  has(refused(other, "latest"), "shape");

  // Only exports: not a state to go on from.
  const Setup exports = {manifest, 2, folder / "exports", {}};
  fs::create_directories(exports.folder);
  fs::copy(whole.folder + "/export", exports.folder + "/export", fs::copy_options::recursive);
  has(refused(exports, "latest"), "cannot be resumed");

  // Weights to start from, and a checkpoint to go on from.
  const Setup started = {manifest,
                         1,
                         folder / "started",
                         {"models.student.init_from=\"" + whole.folder + "/export/student\""}};
  train(started);
  auto elsewhere = started;
  elsewhere.settings = {"models.student.init_from=\"" + whole.folder + "/export/student-ema\""};
  has(refused(elsewhere, "latest"), "do not go together");
}

TEST_CASE("resume: an average that is too slow for its run is told of at the start") {
  const TempFolder folder;
  const Setup slow = {sft(), 4, folder / "slow", {"models.student.ema.decay=0.9999"}};
  CHECK(train(slow).output.find("still holds 100 % of its first value after all 4 updates") !=
        std::string::npos);
  const Setup quick = {sft(), 4, folder / "quick", {"models.student.ema.decay=0.1"}};
  CHECK(train(quick).output.find("still holds") == std::string::npos);
}

TEST_CASE("resume: the time limit stops a run in time, and it goes on") {
  const TempFolder folder;
  Setup setup = {sft(), 100000, folder / "run", {"run.max_wall_time=\"1s\""}};
  setup.settings.push_back("training.checkpoint.checkpoints_total_limit=1");
  const auto outcome = run_limbeck(setup.arguments(""));
  CHECK(outcome.exit_code == 130);
  CHECK(outcome.output.find("run.max_wall_time is nearly over") != std::string::npos);
  CHECK(outcome.output.find("--resume-from-checkpoint latest") != std::string::npos);
  CHECK(run_limbeck(setup.arguments("latest")).output.find("going on after step") !=
        std::string::npos);
}
