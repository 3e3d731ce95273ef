// SPDX-License-Identifier: Apache-2.0
// Losses that learn from other networks, in the real program: between fine-tuning on data and on a
// teacher only the manifest differs.
#include <cmath>
#include <string>
#include <vector>

#include "program.hpp"

#include <doctest/doctest.h>

using namespace limbeck::testing;

namespace {

const std::string kManifest = LIMBECK_SOURCE_DIR "/tests/e2e/tiny_sft.toml";

std::vector<std::string> with(std::vector<std::string> arguments,
                              const std::vector<std::string>& settings) {
  arguments.insert(arguments.end(),
                   {"--set", "training.data.data_path=\"" + clips().string() + "\""});
  for (const auto& setting : settings) {
    arguments.insert(arguments.end(), {"--set", setting});
  }
  return arguments;
}

Outcome train(const TempFolder& folder, const std::vector<std::string>& settings) {
  return run_limbeck(with({"train", kManifest, "--override-output-dir", folder / "out"}, settings));
}

// The values of a metric in the four steps of the tiny manifest.
std::vector<double> train_for(const std::string& name, const std::vector<std::string>& settings) {
  const TempFolder folder;
  const auto outcome = train(folder, settings);
  REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.output);
  const auto values = metric(folder / "out/metrics.jsonl", name);
  REQUIRE(values.size() == 4);
  return values;
}

// A network that was trained a little, as the program exported it.
const std::string& trained() {
  static const TempFolder folder;
  static const std::string path = [] {
    const auto outcome = train(folder, {"training.loop.max_train_steps=8"});
    REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.output);
    return folder / "out/export/student";
  }();
  return path;
}

std::string network(const std::string& role) {
  return "models." + role + "={ type = \"wan\", init_from = \"" + trained() + "\" }";
}
const std::string& from_trained() {
  static const std::string setting = "models.student.init_from=\"" + trained() + "\"";
  return setting;
}

bool says(const Outcome& outcome, const std::string& text) {
  return outcome.output.find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("teacher losses: the score of an exported teacher trains a fresh student") {
  const std::vector<std::string> settings = {
      "losses=[{ type = \"teacher_score\", guidance_scale = 2.0, cfg_uncond_text = \"zero\" }]",
      network("teacher")};
  const auto direction = train_for("teacher_score/grad_abs_mean", settings);
  for (const double size : direction) {
    CHECK(size > 0);
    CHECK(std::isfinite(size));
  }
  CHECK(train_for("teacher_score/nonfinite", settings) == std::vector<double>(4, 0.0));
}

TEST_CASE("teacher losses: a student that is its teacher stands still, a guided teacher moves it") {
  for (const std::string type : {"teacher_score", "teacher_regression"}) {
    CAPTURE(type);
    const std::vector<std::string> alike = {"losses=[{ type = \"" + type + "\" }]", from_trained(),
                                            network("teacher")};
    CHECK(train_for("loss", alike)[0] < 1e-12);
    const std::vector<std::string> guided = {
        "losses=[{ type = \"" + type + "\", guidance_scale = 5.0, cfg_uncond_text = \"zero\" }]",
        from_trained(), network("teacher")};
    CHECK(train_for("loss", guided)[0] > 1e-12);
  }
}

TEST_CASE("teacher losses: a frozen critic takes the place of the student's own prediction") {
  // Teacher and critic are one network: nothing to learn, whatever the student is.
  const auto alike = train_for(
      "loss", {"losses=[{ type = \"teacher_score\" }]", network("teacher"), network("critic")});
  CHECK(alike == std::vector<double>(4, 0.0));
}

TEST_CASE("teacher losses: micro-steps see the noise of their samples' places") {
  const std::string loss = "losses=[{ type = \"teacher_score\" }]";
  const auto whole = train_for("loss", {loss, network("teacher")});
  const auto halves =
      train_for("loss", {loss, network("teacher"), "training.data.train_batch_size=8",
                         "training.loop.gradient_accumulation_steps=2"});
  CHECK(std::abs(halves[0] - whole[0]) < 1e-5 * whole[0]);
  const auto other = train_for("loss", {loss, network("teacher"), "run.seed=4"});
  CHECK(std::abs(other[0] - whole[0]) > 1e-4 * whole[0]);
}

TEST_CASE("teacher losses: terms add up by their weights, and data and reference can be mixed") {
  const auto loss = [](const std::string& weight) {
    return train_for("loss", {"losses=[{ type = \"velocity_mse\" }, { type = \"kl_reference\", "
                              "weight = " +
                                  weight + " }]",
                              network("reference")});
  };
  const auto term = train_for("loss/kl_reference",
                              {"losses=[{ type = \"velocity_mse\" }, { type = \"kl_reference\", "
                               "weight = 1.0 }]",
                               network("reference")})[0];
  CHECK(term > 0);
  CHECK(std::abs(loss("3.0")[0] - loss("1.0")[0] - 2 * term) < 1e-5);
}

TEST_CASE("teacher losses: adapters begin at their base and are held to it") {
  const auto term = train_for(
      "loss/kl_reference",
      {"losses=[{ type = \"velocity_mse\" }, { type = \"kl_reference\", reference = \"base\" }]",
       from_trained(), "models.student.lora={ enable = true, rank = 4, alpha = 4 }"});
  CHECK(term[0] == 0);
  CHECK(term[3] > 0);
}

TEST_CASE("teacher losses: what a manifest forgets or adds for nothing is an error") {
  const TempFolder folder;
  const auto missing = train(folder, {"losses=[{ type = \"teacher_score\" }]"});
  CHECK(missing.exit_code == 2);
  CHECK(says(missing,
             "loss \"teacher_score\" needs a role \"teacher\", and there is no "
             "[models.teacher]"));

  const auto idle = train(folder, {network("teacher")});
  CHECK(idle.exit_code == 2);
  CHECK(says(idle, "models.teacher: nothing uses this role"));
  CHECK(says(idle, "teacher_regression, teacher_score"));

  const auto no_adapters =
      train(folder, {"losses=[{ type = \"kl_reference\", reference = \"base\" }]"});
  CHECK(no_adapters.exit_code == 2);
  CHECK(says(no_adapters, "set models.student.lora.enable = true"));

  const auto no_reference =
      run_limbeck(with({"check", kManifest}, {"losses=[{ type = \"kl_reference\" }]"}));
  CHECK(no_reference.exit_code == 2);
  CHECK(says(no_reference, "add [models.reference]"));

  const auto unread = train(
      folder, {"losses=[{ type = \"kl_reference\", reference = \"base\" }]", network("reference")});
  CHECK(unread.exit_code == 2);
  CHECK(says(unread, "does not read [models.reference]"));
}
