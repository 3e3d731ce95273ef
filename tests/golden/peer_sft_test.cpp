// SPDX-License-Identifier: Apache-2.0
// The whole program against PyTorch: the first steps of an SFT run with hash-filled weights, data
// and draws have the losses and gradient norms that Diffusers' transformer, autograd and
// torch.optim.AdamW gave. The pinned numbers are those of bench/peer/sft.py, one thread:
//
//   scripts/bench peer --sizes quick,tiny --threads 1 --policies default --rounds 1
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "core/checkpoint/safetensors.hpp"
#include "e2e/program.hpp"
#include "fixtures/hash_fill.hpp"
#include "golden/peer_size.hpp"

#include <doctest/doctest.h>

namespace {

using namespace limbeck::testing;

constexpr uint32_t kSteps = 3;
constexpr double kLossTolerance = 1e-5;  // relative
constexpr double kNormTolerance = 5e-5;  // PyTorch's norm of norms is itself only so exact

// A size and what PyTorch gave for it.
struct Case {
  const PeerSize& size;
  std::vector<double> losses;
  std::vector<double> norms;
};

const Case& tiny() {
  static const Case tiny{.size = tiny_size(),
                         .losses = {3.0994319915771484, 3.068476676940918, 3.1042869091033936},
                         .norms = {2.9524004459381104, 2.846717596054077, 2.829029083251953}};
  return tiny;
}

const Case& quick() {
  static const Case quick{.size = quick_size(),
                          .losses = {3.1912050247192383, 3.1173512935638428, 3.1121127605438232},
                          .norms = {4.464059352874756, 3.8815078735351562, 3.9760823249816895}};
  return quick;
}

// ---- The inputs

// Entries <purpose>/<step>/<micro-step>/<index>.
void write_draws(const PeerSize& of, const std::string& path) {
  std::vector<int64_t> sizes = {of.batch};
  sizes.insert(sizes.end(), of.latents.begin(), of.latents.end());
  limbeck::NamedTensors draws;
  for (uint32_t group = 0; group < kSteps; ++group) {
    const std::string place = "/" + std::to_string(group + 1) + "/0/0";
    draws.emplace_back("flow_noise.noise" + place,
                       filled(sizes, data_key(group, Purpose::kNoise), kDataScale));
    draws.emplace_back("flow_noise.timestep" + place,
                       filled({of.batch}, data_key(group, Purpose::kTimestep), 0.5, 0.5));
  }
  limbeck::write_safetensors(path, draws);
}

std::string manifest(const PeerSize& of, const TempFolder& folder) {
  std::ostringstream text;
  text << "plugins = ['wan', 'sft', 'basics', '" LIMBECK_TEST_PLUGIN_DIR "/hash_fill.so']\n"
       << "[run]\nthreads = 1\nreplay = '" << folder / "draws.safetensors"
       << "'\n"
       << "[models.student]\ntype = 'wan'\ninit_from = 'weights'\n"
       << "[[prepare]]\ntype = 'flow_noise'\nweighting_scheme = 'uniform'\n"
       << "[training.data]\ntype = 'hash_fill'\nshuffle = false\n"
       << "train_batch_size = " << of.batch << "\ngroup_size = " << of.batch << "\n"
       << "groups = " << kSteps << "\nlatents = " << text_of(of.latents) << "\n"
       << "context = " << text_of({of.text_len, of.text_dim}) << "\n"
       << "[training.optimizer]\nlearning_rate = 1e-4\nbetas = [0.9, 0.999]\neps = 1e-8\n"
       << "weight_decay = 0.01\nlr_scheduler = 'constant'\n"
       << "[training.loop]\nmax_train_steps = " << kSteps << "\n"
       << "[training.tracker]\ntrackers = ['jsonl']\n"
       << "[callbacks.grad_clip]\nmax_grad_norm = 1.0\n"
       << "[pipeline]\nflow_shift = 3.0\n";
  return text.str();
}

// ---- The runs

struct Result {
  std::vector<double> losses;
  std::vector<double> norms;
};

// `change`: a key=value that differs from what PyTorch did.
Result train(const Case& of, const std::string& change = "") {
  const TempFolder folder;
  write_model(of.size, folder / "weights");
  write_draws(of.size, folder / "draws.safetensors");
  write_text(folder / "sft.toml", manifest(of.size, folder));
  std::vector<std::string> arguments = {"train", folder / "sft.toml", "--override-output-dir",
                                        folder / "out"};
  if (!change.empty()) {
    arguments.insert(arguments.end(), {"--set", change});
  }
  const auto outcome = run_limbeck(arguments);
  REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.output);
  return {metric(folder / "out/metrics.jsonl", "loss"),
          metric(folder / "out/metrics.jsonl", "grad_norm/student")};
}

void check_like_pytorch(const Case& of) {
  const auto result = train(of);
  CAPTURE(of.size.name);
  CHECK(worst_relative(result.losses, of.losses) <= kLossTolerance);
  CHECK(worst_relative(result.norms, of.norms) <= kNormTolerance);
}

}  // namespace

TEST_CASE("peer: the hash gives the numbers that other languages get") {
  CHECK(hash_value(0, 0) == doctest::Approx(0.2164021828211844).epsilon(1e-15));
  CHECK(hash_value(2, 0) == doctest::Approx(-0.7345444830134511).epsilon(1e-15));
  CHECK(hash_value(1, 5) == doctest::Approx(-0.29357299534603953).epsilon(1e-15));
}

TEST_CASE("peer: three SFT steps of size tiny have PyTorch's losses and gradient norms") {
  check_like_pytorch(tiny());
}

TEST_CASE("peer: three SFT steps of size quick have PyTorch's losses and gradient norms") {
  check_like_pytorch(quick());
}

TEST_CASE("peer: another shift of the noise levels is seen in the first step") {
  const auto other = train(tiny(), "pipeline.flow_shift=3.1");
  CHECK(worst_relative({other.losses[0]}, {tiny().losses[0]}) > 10 * kLossTolerance);
  CHECK(worst_relative({other.norms[0]}, {tiny().norms[0]}) > 10 * kNormTolerance);
}

TEST_CASE("peer: another learning rate is seen in the steps after the first") {
  const auto other = train(tiny(), "training.optimizer.learning_rate=1.2e-4");
  CHECK(worst_relative({other.losses[0]}, {tiny().losses[0]}) <= kLossTolerance);
  CHECK(worst_relative({other.losses[1]}, {tiny().losses[1]}) > 2 * kLossTolerance);
  CHECK(worst_relative({other.losses[2]}, {tiny().losses[2]}) > 2 * kLossTolerance);
}
