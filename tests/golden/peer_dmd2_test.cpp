// SPDX-License-Identifier: Apache-2.0
// The whole program against PyTorch: the first steps of a distillation with hash-filled weights of
// three roles, texts and draws have the losses and gradient norms that Diffusers' transformer,
// autograd and torch.optim.AdamW gave. The pinned numbers are those of bench/peer/dmd2.py, one
// thread, no warm-up:
//
//   cd bench; ../.interop/bin/python -m peer.dmd2 --size tiny --warmup 0 --steps 3
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "core/checkpoint/safetensors.hpp"
#include "core/checkpoint/weights.hpp"
#include "e2e/program.hpp"
#include "fixtures/hash_fill.hpp"
#include "golden/peer_size.hpp"

#include <doctest/doctest.h>

namespace {

using namespace limbeck::testing;

constexpr uint32_t kSteps = 3;
constexpr uint32_t kFewSteps = 4;
constexpr double kTolerance = 1e-4;  // relative
constexpr uint32_t kNegativeTextKey = 900000;
constexpr uint32_t kRolloutPurpose = 10;

struct Result {
  std::vector<double> generator;
  std::vector<double> critic;
  std::vector<double> student_norms;
  std::vector<double> critic_norms;
};

uint32_t key_of(uint32_t group, uint32_t purpose) {
  return data_key(group, static_cast<Purpose>(purpose));
}

// Entries <purpose>/<step>/<micro-step>/<index>; the index of a round begins at its number * 2^24.
void write_draws(const PeerSize& of, const std::string& path) {
  std::vector<int64_t> sizes = {of.batch};
  sizes.insert(sizes.end(), of.latents.begin(), of.latents.end());
  limbeck::NamedTensors draws;
  for (uint32_t step = 0; step < kSteps; ++step) {
    for (uint32_t round = 0; round < 2; ++round) {
      const uint32_t group = 2 * step + round;
      const auto add = [&](const char* what, at::Tensor value, uint32_t index = 0) {
        draws.emplace_back(std::string("dmd2.") + (round == 0 ? "student." : "critic.") + what +
                               "/" + std::to_string(step + 1) + "/0/" +
                               std::to_string((round << 24U) + index),
                           std::move(value));
      };
      add("exit", at::full({1}, static_cast<int64_t>(step % kFewSteps), at::kLong));
      add("level", filled({of.batch}, data_key(group, Purpose::kTimestep), 0.5, 0.5));
      add("noise", filled(sizes, data_key(group, Purpose::kNoise), kDataScale));
      for (uint32_t i = 0; i < kFewSteps; ++i) {
        add("rollout", filled(sizes, key_of(group, kRolloutPurpose + i), kDataScale), i);
      }
    }
  }
  limbeck::write_safetensors(path, draws);
}

std::string manifest(const PeerSize& of, const TempFolder& folder) {
  std::ostringstream text;
  text << "plugins = ['wan', 'dmd2', 'basics', 'stored_text', '" LIMBECK_TEST_PLUGIN_DIR
       << "/hash_fill.so']\n"
       << "[run]\nthreads = 1\nreplay = '" << folder / "draws.safetensors"
       << "'\n";
  for (const char* role : {"student", "teacher", "critic"}) {
    text << "[models." << role << "]\ntype = 'wan'\ninit_from = '" << role << "'\n";
  }
  text << "[models.student.ema]\ndecay = 0.98\n"
       << "[models.text_encoder]\ntype = 'stored_text'\ninit_from = 'negative'\n"
       << "[method]\ntype = 'dmd2'\ndmd_denoising_steps = [1000, 750, 500, 250]\n"
       << "warp_denoising_step = true\nlatent_shape = " << text_of(of.latents) << "\n"
       << "update_order = 'sequential'\nreal_score_guidance_scale = 4.5\n"
       << "min_timestep_ratio = 0.02\nmax_timestep_ratio = 0.98\n"
       << "fake_score_learning_rate = 4e-5\n"
       << "[training.data]\ntype = 'hash_fill'\nshuffle = false\n"
       << "train_batch_size = " << of.batch << "\ngroup_size = " << of.batch << "\n"
       << "groups = " << 2 * kSteps << "\nlatents = " << text_of(of.latents) << "\n"
       << "context = " << text_of({of.text_len, of.text_dim}) << "\n"
       << "[training.optimizer]\nlearning_rate = 1e-5\nbetas = [0.0, 0.999]\neps = 1e-8\n"
       << "weight_decay = 0.01\nlr_scheduler = 'constant'\n"
       << "[training.loop]\nmax_train_steps = " << kSteps << "\n"
       << "[training.tracker]\ntrackers = ['jsonl']\n"
       << "[callbacks.grad_clip]\nmax_grad_norm = 1.0\n"
       << "[pipeline]\nflow_shift = 3.0\n";
  return text.str();
}

// `change`: a key=value that differs from what PyTorch did.
Result train(const PeerSize& of, const std::string& change = "") {
  const TempFolder folder;
  write_model(of, folder / "student");
  write_model(of, folder / "teacher", 10000);
  write_model(of, folder / "critic", 20000);
  const nlohmann::json config = {{"tokens", of.text_len}, {"width", of.text_dim}};
  limbeck::write_weights(
      folder / "negative", config.dump(),
      {{"context", filled({of.text_len, of.text_dim}, kNegativeTextKey, kDataScale)}});
  write_draws(of, folder / "draws.safetensors");
  write_text(folder / "dmd2.toml", manifest(of, folder));
  std::vector<std::string> arguments = {"train", folder / "dmd2.toml", "--override-output-dir",
                                        folder / "out"};
  if (!change.empty()) {
    arguments.insert(arguments.end(), {"--set", change});
  }
  const auto outcome = run_limbeck(arguments);
  REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.output);
  const auto file = folder / "out/metrics.jsonl";
  return {metric(file, "generator_loss"), metric(file, "fake_score_loss"),
          metric(file, "grad_norm/student"), metric(file, "grad_norm/critic")};
}

void check_equal(const Result& got, const Result& expected) {
  CHECK(worst_relative(got.generator, expected.generator) <= kTolerance);
  CHECK(worst_relative(got.critic, expected.critic) <= kTolerance);
  CHECK(worst_relative(got.student_norms, expected.student_norms) <= kTolerance);
  CHECK(worst_relative(got.critic_norms, expected.critic_norms) <= kTolerance);
}

const Result& tiny() {
  static const Result tiny{
      .generator = {0.5532081127166748, 0.6156485080718994, 0.6815898418426514},
      .critic = {4.430402755737305, 4.391413688659668, 3.8663036823272705},
      .student_norms = {1.176603078842163, 1.1594810485839844, 0.9983943700790405},
      .critic_norms = {3.103240489959717, 4.278683662414551, 4.166494846343994}};
  return tiny;
}

const Result& quick() {
  static const Result quick{
      .generator = {0.6790397763252258, 0.6805906891822815, 0.7031552791595459},
      .critic = {4.643277645111084, 3.8754708766937256, 3.864391326904297},
      .student_norms = {2.674799919128418, 2.23783802986145, 2.270566463470459},
      .critic_norms = {6.657959461212158, 5.240305423736572, 6.54368782043457}};
  return quick;
}

}  // namespace

TEST_CASE("peer: three DMD2 steps of size tiny have PyTorch's losses and gradient norms") {
  check_equal(train(tiny_size()), tiny());
}

TEST_CASE("peer: three DMD2 steps of size quick have PyTorch's losses and gradient norms") {
  check_equal(train(quick_size()), quick());
}

TEST_CASE("peer: another guidance, normaliser or order of updates is seen in the losses") {
  const auto guided = train(tiny_size(), "method.real_score_guidance_scale=4.4");
  CHECK(worst_relative({guided.generator[0]}, {tiny().generator[0]}) > 10 * kTolerance);
  CHECK(worst_relative({guided.critic[0]}, {tiny().critic[0]}) <= kTolerance);
  const auto normalised = train(tiny_size(), "method.normalizer=\"batch\"");
  CHECK(worst_relative({normalised.generator[0]}, {tiny().generator[0]}) > 10 * kTolerance);
}
