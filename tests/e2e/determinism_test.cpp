// SPDX-License-Identifier: Apache-2.0
// What must give equal bits gives equal bits, through the real program.
#include <cmath>
#include <string>
#include <vector>

#include "program.hpp"

#include <doctest/doctest.h>

using namespace limbeck::testing;

namespace {

struct Result {
  std::string weights;  // the bytes of the exported files
  std::string averaged;
  std::vector<double> losses;
  std::vector<double> norms;
};

Result train(const std::vector<std::string>& settings) {
  const TempFolder folder;
  std::vector<std::string> arguments = {"train",
                                        "tests/e2e/tiny_sft.toml",
                                        "--override-output-dir",
                                        folder / "out",
                                        "--set",
                                        "training.data.data_path=\"" + clips().string() + "\""};
  for (const auto& setting : settings) {
    arguments.insert(arguments.end(), {"--set", setting});
  }
  const auto outcome = run_limbeck(arguments);
  REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.output);
  const std::string file = "/transformer/diffusion_pytorch_model.safetensors";
  return {read_text(folder / ("out/export/student" + file)),
          read_text(folder / ("out/export/student-ema" + file)),
          metric(folder / "out/metrics.jsonl", "loss"),
          metric(folder / "out/metrics.jsonl", "grad_norm/student")};
}

const Result& reference() {
  static const Result result = train({});
  return result;
}

double worst_relative(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    worst = std::max(worst, std::abs(a[i] - b[i]) / std::abs(b[i]));
  }
  return worst;
}

void check_equal(const Result& a, const Result& b) {
  CHECK(a.losses == b.losses);
  CHECK(a.norms == b.norms);
  CHECK((a.weights == b.weights));
  CHECK((a.averaged == b.averaged));
}

}  // namespace

TEST_CASE("determinism: two runs with one seed have identical bits") {
  REQUIRE(reference().losses.size() == 4);
  check_equal(train({}), reference());
}

TEST_CASE("determinism: another seed gives other numbers") {
  const auto other = train({"run.seed=4"});
  CHECK(worst_relative(other.losses, reference().losses) > 1e-4);
  CHECK((other.weights != reference().weights));
}

TEST_CASE("determinism: full recompute has the bits of keep") {
  check_equal(train({"models.student.enable_gradient_checkpointing_type=\"full\""}), reference());
}

TEST_CASE("determinism: two data workers have the bits of none") {
  check_equal(train({"training.data.dataloader_num_workers=2"}), reference());
}

TEST_CASE("determinism: a batch of 16 equals two micro-steps of 8") {
  const auto cut =
      train({"training.data.train_batch_size=8", "training.loop.gradient_accumulation_steps=2"});
  CHECK(worst_relative(cut.losses, reference().losses) < 1e-6);
  CHECK(worst_relative(cut.norms, reference().norms) < 1e-6);

  // Half the batch is not the same thing.
  const auto half = train({"training.data.train_batch_size=8"});
  CHECK(worst_relative(half.losses, reference().losses) > 1e-4);
}
