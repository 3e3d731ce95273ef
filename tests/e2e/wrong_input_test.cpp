// SPDX-License-Identifier: Apache-2.0
// What a person gets wrong is answered by one clear message and the right exit code.
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "program.hpp"

#include <doctest/doctest.h>

using namespace limbeck::testing;

namespace {

const std::string kManifest = LIMBECK_SOURCE_DIR "/tests/e2e/tiny_sft.toml";

// The tiny manifest with one piece of text replaced.
std::string edited(const std::string& from, const std::string& to) {
  auto text = read_text(kManifest);
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

Outcome train(const std::string& manifest,
              const TempFolder& folder,
              const std::vector<std::string>& settings = {}) {
  std::vector<std::string> arguments = {
      "train",        manifest, "--override-output-dir",
      folder / "out", "--set",  "training.data.data_path=\"" + clips().string() + "\""};
  for (const auto& setting : settings) {
    arguments.insert(arguments.end(), {"--set", setting});
  }
  return run_limbeck(arguments);
}

bool says(const Outcome& outcome, const std::string& text) {
  return outcome.output.find(text) != std::string::npos;
}

std::filesystem::path first_parquet() {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(clips())) {
    if (entry.path().extension() == ".parquet") {
      return entry.path();
    }
  }
  return {};
}

}  // namespace

TEST_CASE("wrong input: several manifest faults come together, with places and suggestions") {
  const TempFolder folder;
  auto text = edited("learning_rate = 1e-3", "learning_rat = 1e-3");
  text.replace(text.find("threads = 1"), 11, "threads = \"one\"");
  write_text(folder / "bad.toml", text);

  const auto outcome = train(folder / "bad.toml", folder);
  CHECK(outcome.exit_code == 2);
  CHECK(says(outcome, "bad.toml:6:"));
  CHECK(says(outcome, "run.threads"));
  CHECK(says(outcome, "learning_rat"));
  CHECK(says(outcome, "learning_rate"));
  CHECK(!std::filesystem::exists(folder / "out"));
}

TEST_CASE("wrong input: a plugin that is not there") {
  const TempFolder folder;
  write_text(folder / "bad.toml", edited("\"sft\",", "\"sfd\","));
  const auto outcome = train(folder / "bad.toml", folder);
  CHECK(outcome.exit_code == 2);
  CHECK(says(outcome, "sfd"));
}

TEST_CASE("wrong input: a manifest that is not there") {
  const TempFolder folder;
  const auto outcome = train(folder / "none.toml", folder);
  CHECK(outcome.exit_code == 2);
  CHECK(says(outcome, "none.toml"));
}

TEST_CASE("wrong input: a truncated Parquet file") {
  const TempFolder folder;
  const auto bytes = read_text(first_parquet());
  write_text(folder / "data/cut.parquet", bytes.substr(0, bytes.size() / 2));
  const auto outcome =
      train(kManifest, folder, {"training.data.data_path=\"" + folder / "data" + "\""});
  CHECK(outcome.exit_code == 4);
  CHECK(says(outcome, "cut.parquet"));
}

TEST_CASE("wrong input: damaged bytes inside a Parquet file are noticed, not trained on") {
  const TempFolder folder;
  auto bytes = read_text(first_parquet());
  // The footer holds the schema: flip a byte in the middle of it.
  bytes[bytes.size() - 40] = static_cast<char>(bytes[bytes.size() - 40] ^ 0x55);
  bytes[bytes.size() - 60] = static_cast<char>(bytes[bytes.size() - 60] ^ 0x55);
  bytes[bytes.size() - 8] = static_cast<char>(bytes[bytes.size() - 8] ^ 0x55);
  write_text(folder / "data/bad.parquet", bytes);
  const auto outcome =
      train(kManifest, folder, {"training.data.data_path=\"" + folder / "data" + "\""});
  CHECK(outcome.exit_code == 4);
  CHECK(says(outcome, "bad.parquet"));
}

TEST_CASE("wrong input: a truncated safetensors file") {
  const TempFolder folder;
  REQUIRE(train(kManifest, folder, {"training.loop.max_train_steps=1"}).exit_code == 0);
  const auto file = folder / "out/export/student/transformer/diffusion_pytorch_model.safetensors";
  const auto bytes = read_text(file);
  write_text(file, bytes.substr(0, bytes.size() - 100));

  const auto outcome = train(
      kManifest, folder, {"models.student.init_from=\"" + folder / "out/export/student" + "\""});
  CHECK(outcome.exit_code == 4);
  CHECK(says(outcome, "diffusion_pytorch_model.safetensors"));
  CHECK(says(outcome, "while loading the weights of role 'student'"));
}

TEST_CASE("wrong input: weights of another shape are listed together") {
  const TempFolder folder;
  REQUIRE(train(kManifest, folder, {"training.loop.max_train_steps=1"}).exit_code == 0);
  const auto outcome =
      train(kManifest, folder,
            {"models.student.init_from=\"" + folder / "out/export/student" + "\"",
             "models.student.config.num_layers=3", "models.student.config.ffn_dim=64"});
  CHECK(outcome.exit_code == 4);
  CHECK(says(outcome, "blocks.2."));
  CHECK(says(outcome, "[64, 24]"));
}

TEST_CASE("wrong input: an export starts a new run with the same weights") {
  const TempFolder folder;
  REQUIRE(train(kManifest, folder, {"training.loop.max_train_steps=1"}).exit_code == 0);
  const auto from = "models.student.init_from=\"" + folder / "out/export/student" + "\"";
  const auto outcome = run_limbeck(
      {"train", kManifest, "--override-output-dir", folder / "again", "--set", from, "--set",
       "training.data.data_path=\"" + clips().string() + "\"", "--set",
       "training.loop.max_train_steps=1", "--set",
       "training.optimizer.lr_scheduler=\"constant_with_warmup\"", "--set",
       "training.optimizer.lr_warmup_steps=1"});  // a warm-up starts at zero: nothing moves
  REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.output);
  const std::string file = "/transformer/diffusion_pytorch_model.safetensors";
  CHECK((read_text(folder / ("out/export/student" + file)) ==
         read_text(folder / ("again/export/student" + file))));
}

TEST_CASE("wrong input: a loss that is not finite stops before weights move") {
  const TempFolder folder;
  const auto outcome = train(kManifest, folder, {"training.optimizer.learning_rate=1e30"});
  CHECK(outcome.exit_code == 5);
  CHECK(says(outcome, "is not finite"));
  CHECK(says(outcome, "samples (rows)"));
  CHECK(says(outcome, "of step 2"));
}

TEST_CASE(
    "stop: a signal without checkpoints ends after the step in hand and exports the weights") {
  const TempFolder folder;
  const auto outcome =
      signal_limbeck({"train", kManifest, "--override-output-dir", folder / "out", "--set",
                      "training.data.data_path=\"" + clips().string() + "\"", "--set",
                      "training.loop.max_train_steps=100000"},
                     "step 3/", SIGTERM);
  CHECK(outcome.exit_code == 130);
  CHECK(says(outcome, "training_state_checkpointing_steps is 0"));
  CHECK(std::filesystem::exists(folder / "out/export/student/transformer/config.json"));
}

TEST_CASE("command line: help and manifest faults answer without libtorch") {
  const auto help = run_limbeck({"--help"});
  CHECK(help.exit_code == 0);
  CHECK(says(help, "Usage"));

  const TempFolder folder;
  write_text(folder / "bad.toml", edited("seed = 3", "sed = 3"));
  const auto outcome = run_limbeck({"check", folder / "bad.toml"});
  CHECK(outcome.exit_code == 2);
  CHECK(says(outcome, "did you mean"));
}
