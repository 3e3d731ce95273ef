// SPDX-License-Identifier: Apache-2.0
// The whole program against PyTorch: the first steps of an SFT run with hash-filled weights, data
// and draws have the losses and gradient norms that Diffusers' transformer, autograd and
// torch.optim.AdamW gave. The pinned numbers are those of bench/peer/sft.py, one thread:
//
//   scripts/bench peer --sizes quick,tiny --threads 1 --policies default --rounds 1
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "core/checkpoint/safetensors.hpp"
#include "core/checkpoint/weights.hpp"
#include "e2e/program.hpp"
#include "fixtures/hash_fill.hpp"

#include <doctest/doctest.h>

namespace {

using namespace limbeck::testing;

constexpr uint32_t kSteps = 3;
constexpr double kLossTolerance = 1e-5;  // relative
constexpr double kNormTolerance = 5e-5;  // PyTorch's norm of norms is itself only so exact

// A size of bench/peer/sizes.json and what PyTorch gave for it.
struct Case {
  std::string name;
  int64_t heads;
  int64_t head_dim;
  int64_t layers;
  int64_t ffn_dim;
  int64_t text_len;
  int64_t text_dim;
  std::vector<int64_t> latents;  // channels, frames, height, width
  int64_t batch;
  std::vector<double> losses;
  std::vector<double> norms;

  int64_t width() const { return heads * head_dim; }
};

const Case& tiny() {
  static const Case tiny{.name = "tiny",
                         .heads = 4,
                         .head_dim = 16,
                         .layers = 2,
                         .ffn_dim = 256,
                         .text_len = 32,
                         .text_dim = 64,
                         .latents = {16, 4, 12, 12},
                         .batch = 2,
                         .losses = {3.0994319915771484, 3.068476676940918, 3.1042869091033936},
                         .norms = {2.9524004459381104, 2.846717596054077, 2.829029083251953}};
  return tiny;
}

const Case& quick() {
  static const Case quick{.name = "quick",
                          .heads = 4,
                          .head_dim = 24,
                          .layers = 4,
                          .ffn_dim = 384,
                          .text_len = 4,
                          .text_dim = 32,
                          .latents = {4, 6, 4, 8},
                          .batch = 16,
                          .losses = {3.1912050247192383, 3.1173512935638428, 3.1121127605438232},
                          .norms = {4.464059352874756, 3.8815078735351562, 3.9760823249816895}};
  return quick;
}

// ---- The inputs

std::string text_of(const std::vector<int64_t>& values) { return nlohmann::json(values).dump(); }

// Shapes of all parameters, by name in ASCII order.
std::map<std::string, std::vector<int64_t>> parameters(const Case& of) {
  std::map<std::string, std::vector<int64_t>> all;
  const int64_t width = of.width();
  const int64_t patch = of.latents[0] * 2 * 2;
  const auto linear = [&](const std::string& name, int64_t out, int64_t in) {
    all[name + ".weight"] = {out, in};
    all[name + ".bias"] = {out};
  };
  all["scale_shift_table"] = {1, 2, width};
  all["patch_embedding.weight"] = {width, of.latents[0], 1, 2, 2};
  all["patch_embedding.bias"] = {width};
  linear("condition_embedder.time_embedder.linear_1", width, 256);
  linear("condition_embedder.time_embedder.linear_2", width, width);
  linear("condition_embedder.time_proj", 6 * width, width);
  linear("condition_embedder.text_embedder.linear_1", width, of.text_dim);
  linear("condition_embedder.text_embedder.linear_2", width, width);
  linear("proj_out", patch, width);
  for (int64_t i = 0; i < of.layers; ++i) {
    const std::string block = "blocks." + std::to_string(i) + ".";
    all[block + "scale_shift_table"] = {1, 6, width};
    all[block + "norm2.weight"] = {width};
    all[block + "norm2.bias"] = {width};
    for (const char* attention : {"attn1.", "attn2."}) {
      all[block + attention + "norm_q.weight"] = {width};
      all[block + attention + "norm_k.weight"] = {width};
      for (const char* name : {"to_q", "to_k", "to_v", "to_out.0"}) {
        linear(block + attention + name, width, width);
      }
    }
    linear(block + "ffn.net.0.proj", of.ffn_dim, width);
    linear(block + "ffn.net.2", width, of.ffn_dim);
  }
  return all;
}

// scale u(j, key) + offset for every element.
at::Tensor filled(at::IntArrayRef sizes, uint32_t key, double scale, double offset = 0.0) {
  auto values = at::empty(sizes, at::kFloat);
  auto* data = values.mutable_data_ptr<float>();
  for (int64_t j = 0; j < values.numel(); ++j) {
    const double u = hash_value(static_cast<uint32_t>(j), key);
    data[j] = static_cast<float>(scale * u + offset);
  }
  return values;
}

at::Tensor parameter(const std::string& name, at::IntArrayRef sizes, uint32_t key, int64_t width) {
  if (name.ends_with("scale_shift_table")) {
    return filled(sizes, key, 1.0 / std::sqrt(static_cast<double>(width)));
  }
  if (name.ends_with(".bias")) {
    return filled(sizes, key, 0.05);
  }
  if (sizes.size() == 1) {
    return filled(sizes, key, 0.1, 1.0);
  }
  const auto numel = static_cast<double>(c10::multiply_integers(sizes));
  return filled(sizes, key, std::sqrt(3.0 * static_cast<double>(sizes[0]) / numel));
}

void write_model(const Case& of, const std::string& folder) {
  limbeck::NamedTensors tensors;
  uint32_t key = 0;
  for (const auto& [name, sizes] : parameters(of)) {
    tensors.emplace_back(name, parameter(name, sizes, key++, of.width()));
  }
  const nlohmann::json config = {{"_class_name", "WanTransformer3DModel"},
                                 {"patch_size", {1, 2, 2}},
                                 {"num_attention_heads", of.heads},
                                 {"attention_head_dim", of.head_dim},
                                 {"in_channels", of.latents[0]},
                                 {"out_channels", of.latents[0]},
                                 {"text_dim", of.text_dim},
                                 {"freq_dim", 256},
                                 {"ffn_dim", of.ffn_dim},
                                 {"num_layers", of.layers},
                                 {"cross_attn_norm", true},
                                 {"eps", 1e-6}};
  limbeck::write_weights(folder, config.dump(), tensors);
}

// Entries <purpose>/<step>/<micro-step>/<index>.
void write_draws(const Case& of, const std::string& path) {
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

std::string manifest(const Case& of, const TempFolder& folder) {
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
  write_model(of, folder / "weights");
  write_draws(of, folder / "draws.safetensors");
  write_text(folder / "sft.toml", manifest(of, folder));
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

double worst_relative(const std::vector<double>& values, const std::vector<double>& expected) {
  REQUIRE(values.size() == expected.size());
  double worst = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    worst = std::max(worst, std::abs(values[i] - expected[i]) / std::abs(expected[i]));
  }
  return worst;
}

void check_like_pytorch(const Case& of) {
  const auto result = train(of);
  CAPTURE(of.name);
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
