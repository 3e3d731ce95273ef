// SPDX-License-Identifier: Apache-2.0
// Distillation with the real program and networks of two numbers: the student ends with mean and
// deviation of the data that the teacher knows, unless a term is wrong.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "program.hpp"

#include <doctest/doctest.h>

using namespace limbeck::testing;

namespace {

constexpr double kMean = 1.0;
constexpr double kDeviation = 0.7;

// 128 independent numbers are a video of 8x16 pixels.
constexpr const char* kManifest = R"(
plugins = ["dmd2", "basics", "PLUGINS/gauss.so"]
[run]
threads = 1
log_every_steps = 1000
[models.student]
type = "affine"
config = {mean = -1.0, deviation = 1.5}
[models.teacher]
type = "gauss"
config = {mean = 1.0, deviation = 0.7}
[models.critic]
type = "gauss"
config = {mean = 0.0, deviation = 1.0}
[method]
type = "dmd2"
dmd_denoising_steps = [1000]
latent_shape = [1, 1, 8, 16]
generator_update_interval = 5
min_timestep_ratio = 0.02
max_timestep_ratio = 0.98
fake_score_learning_rate = 0.02
[training.data]
type = "texts"
train_batch_size = 1
[training.optimizer]
learning_rate = 0.01
betas = [0.0, 0.999]
weight_decay = 0.0
[training.loop]
max_train_steps = 3000
[training.tracker]
trackers = ["jsonl"]
[callbacks.grad_clip]
max_grad_norm = 0.0
)";

std::string manifest() {
  std::string text = kManifest;
  const std::string placeholder = "PLUGINS";
  return text.replace(text.find(placeholder), placeholder.size(), LIMBECK_TEST_PLUGIN_DIR);
}

struct Moments {
  double mean = 0;
  double deviation = 0;
};

// The two numbers in an export: a safetensors file of two f32 tensors.
Moments read_moments(const std::string& folder) {
  const auto listing = shell("find '" + folder + "' -name '*.safetensors'");
  const auto bytes = read_text(listing.substr(0, listing.find('\n')));
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  const auto header = nlohmann::json::parse(bytes.substr(8, length));
  const auto number = [&](const char* name) {
    float value = 0;
    const auto offset = header.at(name).at("data_offsets").at(0).get<size_t>();
    std::memcpy(&value, bytes.data() + 8 + length + offset, sizeof value);
    return static_cast<double>(value);
  };
  return {number("mean"), number("deviation")};
}

struct Result {
  Moments student;
  Moments critic;
};

Result distil(const TempFolder& folder, const std::vector<std::string>& settings) {
  write_text(folder / "x.toml", manifest());
  std::vector<std::string> arguments = {"train", folder / "x.toml", "--override-output-dir",
                                        folder / "out"};
  for (const auto& setting : settings) {
    arguments.insert(arguments.end(), {"--set", setting});
  }
  const auto outcome = run_limbeck(arguments);
  REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.output);
  return {read_moments(folder / "out/export/student"), read_moments(folder / "out/export/critic")};
}

bool has_arrived(const Moments& student) {
  return std::abs(student.mean - kMean) < 0.03 && std::abs(student.deviation - kDeviation) < 0.04;
}

}  // namespace

TEST_CASE("dmd2: the student ends with mean and deviation of the data") {
  for (const char* seed : {"run.seed=0", "run.seed=1", "run.seed=2"}) {
    const TempFolder folder;
    const auto result = distil(folder, {seed});
    CAPTURE(seed);
    CAPTURE(result.student.mean);
    CAPTURE(result.student.deviation);
    CHECK(has_arrived(result.student));
    CHECK(std::abs(result.critic.mean - result.student.mean) < 0.1);
    CHECK(std::abs(result.critic.deviation - result.student.deviation) < 0.1);
  }
}

TEST_CASE("dmd2: samples of the same rollout, and a round for each role, arrive as well") {
  const TempFolder joint;
  CHECK(has_arrived(
      distil(joint, {"method.generator_update_interval=1", "method.critic_reuse_rollout=true",
                     "training.loop.max_train_steps=2000"})
          .student));
  const TempFolder sequential;
  CHECK(has_arrived(distil(sequential, {"method.update_order=\"sequential\""}).student));
}

TEST_CASE("dmd2: a critic that does not follow the student leads it elsewhere") {
  const TempFolder folder;
  CHECK_FALSE(has_arrived(distil(folder, {"method.fake_score_learning_rate=1e-9"}).student));
}

TEST_CASE("dmd2: the cadence of updates, learning rates and the teacher's weights") {
  const TempFolder folder;
  distil(folder, {"training.loop.max_train_steps=50", "training.optimizer.lr_scheduler=\"linear\"",
                  "training.checkpoint.training_state_checkpointing_steps=25",
                  "method.critic_warmup_steps=12"});
  const auto file = folder / "out/metrics.jsonl";
  const auto updates = metric(file, "update_student");
  REQUIRE(updates.size() == 50);
  for (size_t step = 1; step <= 50; ++step) {
    CAPTURE(step);
    CHECK(updates[step - 1] == (step > 12 && step % 5 == 0 ? 1 : 0));
  }
  // Rates are counted in a role's own updates: 8 of the student, 50 of the critic.
  const auto student = metric(file, "lr/student");
  const auto critic = metric(file, "lr/critic");
  REQUIRE(student.size() == 8);
  REQUIRE(critic.size() == 50);
  CHECK(student[4] == doctest::Approx(0.01 * 0.5).epsilon(1e-9));
  CHECK(critic[25] == doctest::Approx(0.02 * 0.5).epsilon(1e-9));
  for (const char* name : {"generator_loss", "dmd/grad_abs_mean", "dmd/norm", "dmd/nonfinite",
                           "dmd/t_mean", "dmd/real_std", "dmd/fake_mean", "grad_norm/student"}) {
    CAPTURE(name);
    CHECK(metric(file, name).size() == 8);  // not logged as 0 in the other steps
  }
  const auto hash = [&](const char* step, const char* role) {
    const auto record = nlohmann::json::parse(
        read_text(folder / ("out/checkpoint-" + std::string(step) + "/limbeck.json")));
    return record.at("roles").at(role).at("frozen_xxh3").get<std::string>();
  };
  CHECK_FALSE(hash("25", "teacher").empty());
  CHECK(hash("25", "teacher") == hash("50", "teacher"));
}

TEST_CASE("dmd2: adapters of a student learn from whole networks") {
  const TempFolder folder;
  const std::vector<std::string> data = {"--set",
                                         "training.data.data_path=\"" + clips().string() + "\""};
  const auto train = [&](std::vector<std::string> arguments, const char* output) {
    arguments.insert(arguments.begin(), "train");
    arguments.insert(arguments.end(), {"--override-output-dir", folder / output});
    arguments.insert(arguments.end(), data.begin(), data.end());
    const auto outcome = run_limbeck(arguments);
    REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.output);
  };
  train({"tests/e2e/tiny_sft.toml"}, "base");
  const auto weights = "\"" + folder / "base/export/student" + "\"";
  train({"tests/e2e/tiny_dmd2.toml", "--set", "models.student.init_from=" + weights, "--set",
         "models.critic.init_from=" + weights, "--set",
         "models.student.lora={enable=true, rank=2, alpha=4}"},
        "out");
  CHECK(read_text(folder / "out/export/student/adapter_model.safetensors").size() > 1000);
  const auto norms = metric(folder / "out/metrics.jsonl", "grad_norm/student");
  REQUIRE(norms.size() == 2);
  CHECK(norms[0] > 0);
}

TEST_CASE("dmd2: what cannot be is told before the first step") {
  const auto fault = [](const std::vector<std::string>& settings) {
    const TempFolder folder;
    write_text(folder / "x.toml", manifest());
    std::vector<std::string> arguments = {"train", folder / "x.toml", "--override-output-dir",
                                          folder / "out"};
    for (const auto& setting : settings) {
      arguments.insert(arguments.end(), {"--set", setting});
    }
    const auto outcome = run_limbeck(arguments);
    CHECK(outcome.exit_code != 0);
    return outcome.output;
  };
  const auto says = [&](const std::vector<std::string>& settings, const std::string& text) {
    const auto output = fault(settings);
    CAPTURE(output);
    CHECK(output.find(text) != std::string::npos);
  };
  says({"method.dmd_denoising_steps=[250, 500]"}, "dmd_denoising_steps must descend");
  says({"method.dmd_denoising_steps=[1001]"}, "dmd_denoising_steps must descend");
  says({"method.dmd_denoising_steps=[]"}, "dmd_denoising_steps must descend");
  says({"method.min_timestep_ratio=0.99"}, "min_timestep_ratio is larger than max_timestep_ratio");
  says({"method.gan_loss_weight=0.001"}, "gan_loss_weight is not available");
  says({"method.regression_weight=1.0"}, "needs rollout_mode = \"data_latent\"");
  says({"method.real_score_guidance_scale=4.5"}, "add [models.text_encoder]");
  says({"method.update_order=\"sequential\"", "method.critic_reuse_rollout=true"},
       "critic_reuse_rollout needs update_order = \"joint\"");
  says({"method.latent_shape=[]"}, "set latent_shape = [channels, frames, height, width]");
  says({"method.fake_score_learning_rate=0.0"}, "fake_score_learning_rate");
  says({"models.teacher.trainable=true"}, "teacher");
}
