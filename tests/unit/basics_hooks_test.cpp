// SPDX-License-Identifier: Apache-2.0
// The components of the basics plugin against closed forms, with networks made up for the test.
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <numbers>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "core/plugin/host_table.hpp"
#include "core/tensor/batch.hpp"
#include "core/tensor/handle.hpp"
#include "core/tensor/random.hpp"
#include "core/tensor/tensor_api.hpp"

#include "basics/flow_noise.hpp"
#include "basics/jsonl.hpp"
#include "basics/tensorboard.hpp"
#include "basics/text_dropout.hpp"
#include "basics/validation.hpp"
#include "basics/velocity_mse.hpp"
#include "media/gif.hpp"
#include "media/png.hpp"

#include <doctest/doctest.h>

namespace {

namespace fs = std::filesystem;
using doctest::Approx;

void bind_host() {
  static const bool is_bound = [] {
    limbeck::provide("limbeck.tensor/1", &limbeck::tensor_api());
    limbeck::provide("limbeck.dispatch/1", &limbeck::dispatch_api());
    limbeck::provide("limbeck.batch/1", &limbeck::batch_api());
    limbeck::provide("limbeck.random/1", &limbeck::random_api());
    return lb::bind(&limbeck::host_table()) == nullptr;
  }();
  REQUIRE(is_bound);
}

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "limbeck_basics_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

lb::Tensor wrap(const at::Tensor& tensor) { return lb::Tensor::take(limbeck::give(tensor)); }

// Numbers that look random and are the same everywhere.
lb::Tensor wave(std::vector<int64_t> sizes, double speed) {
  int64_t count = 1;
  for (const int64_t size : sizes) {
    count *= size;
  }
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(std::sin(speed * static_cast<double>(i + 1))));
  }
  return lb::tensor(values, sizes);
}

// Draws of step 3, micro-step 0, for as long as it lives.
class Recorded {
 public:
  explicit Recorded(const std::map<std::string, at::Tensor>& draws) {
    std::map<std::string, at::Tensor> named;
    for (const auto& [purpose, values] : draws) {
      named[purpose + "/3/0/0"] = values;
    }
    limbeck::set_recorded_draws(named);
  }
  ~Recorded() { limbeck::set_recorded_draws({}); }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;
};

// Roles whose networks are functions.
class MadeUpModels {
 public:
  struct Role {
    std::function<lb::Batch(const lb::Batch& in, uint32_t flags)> run;
    lb::Batch facts;
    std::vector<std::string> capabilities;
  };

  explicit MadeUpModels(std::map<uint32_t, Role> roles) : roles_(std::move(roles)) {
    table_.struct_size = sizeof(table_);
    table_.n_roles = 3;
    table_.ctx = this;
    table_.run = [](const lb_models* models, uint32_t role, uint32_t flags, const lb_batch* in,
                    lb_batch* out) -> lb_status* {
      return lb::guard("run()", "made-up models", [&] {
        const lb::Batch result = of(models).roles_.at(role).run(lb::Batch::view(in), flags);
        lb::Batch filled = lb::Batch::view(out);
        for (const std::string& name : result.names()) {
          filled.set(name, result[name]);
        }
      });
    };
    table_.has = [](const lb_models* models, uint32_t role, const char* capability) -> int32_t {
      const auto found = of(models).roles_.find(role);
      if (found == of(models).roles_.end()) {
        return 0;
      }
      const auto& all = found->second.capabilities;
      return capability == nullptr || std::find(all.begin(), all.end(), capability) != all.end();
    };
    table_.facts = [](const lb_models* models, uint32_t role) -> const lb_batch* {
      const auto found = of(models).roles_.find(role);
      return found == of(models).roles_.end() ? nullptr : found->second.facts.raw();
    };
  }

  const lb_models* table() const { return &table_; }

 private:
  static MadeUpModels& of(const lb_models* models) {
    return *static_cast<MadeUpModels*>(models->ctx);
  }

  std::map<uint32_t, Role> roles_;
  lb_models table_{};
};

lb_step step_with(const lb_models* models, const lb::Batch& facts) {
  lb_step step{};
  step.struct_size = sizeof(step);
  step.step = 3;
  step.micros = 1;
  step.models = models;
  step.facts = facts.raw();
  return step;
}

lb::Step plain_step(const lb::Batch& facts) {
  static lb_step step;
  step = step_with(nullptr, facts);
  return lb::Step(&step);
}

double largest_difference(const lb::Tensor& a, const std::vector<double>& b) {
  const std::vector<double> values = a.to_vector<double>();
  REQUIRE(values.size() == b.size());
  double largest = 0.0;
  for (size_t i = 0; i < b.size(); ++i) {
    largest = std::max(largest, std::abs(values[i] - b[i]));
  }
  return largest;
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace

// ---- velocity_mse

namespace {

const std::vector<int64_t> kSizes = {2, 3, 4, 2, 2};
constexpr int64_t kPerSample = 3 * 4 * 2 * 2;

double velocity_loss(const lb::Batch& values, const std::string& weighting) {
  basics::VelocityMse::Options options;
  options.weighting = weighting;
  return basics::VelocityMse(options).loss(plain_step(lb::Batch()), values).item();
}

// The definition, in double: sum m w e^2 / sum m.
double expected_loss(const std::vector<double>& weights,
                     const std::function<double(int64_t)>& mask,
                     double numerator_scale = 1.0) {
  const std::vector<double> prediction = wave(kSizes, 0.7).to_vector<double>();
  const std::vector<double> target = wave(kSizes, 1.3).to_vector<double>();
  double sum = 0.0;
  double count = 0.0;
  for (size_t i = 0; i < prediction.size(); ++i) {
    const double m = mask(static_cast<int64_t>(i));
    const double error = prediction[i] - target[i];
    sum += numerator_scale * m * weights[i / kPerSample] * error * error;
    count += m;
  }
  return sum / count;
}

lb::Batch velocity_values() {
  lb::Batch values;
  values.set("prediction", wave(kSizes, 0.7)).set("target", wave(kSizes, 1.3));
  return values;
}

double everything(int64_t) { return 1.0; }

}  // namespace

TEST_CASE("velocity_mse is the mean squared difference") {
  bind_host();
  const double loss = velocity_loss(velocity_values(), "none");
  CHECK(loss == Approx(expected_loss({1, 1}, everything)).epsilon(1e-6));
  CHECK_FALSE(loss == Approx(expected_loss({1, 1.001}, everything)).epsilon(1e-6));
  CHECK_FALSE(loss == Approx(expected_loss({1, 1}, everything, 1.001)).epsilon(1e-6));
}

TEST_CASE("velocity_mse weights samples by their noise level") {
  bind_host();
  lb::Batch values = velocity_values();
  values.set("sigma", lb::tensor<float>({0.25F, 0.8F}, {2}));
  const double sqrt_0 = 1.0 / (0.25 * 0.25);
  const double sqrt_1 = 1.0 / (0.8 * 0.8);
  CHECK(velocity_loss(values, "sigma_sqrt") ==
        Approx(expected_loss({sqrt_0, sqrt_1}, everything)).epsilon(1e-5));
  CHECK_FALSE(velocity_loss(values, "sigma_sqrt") ==
              Approx(expected_loss({sqrt_1, sqrt_0}, everything)).epsilon(1e-5));
  const auto cosmap = [](double s) { return 2.0 / (std::numbers::pi * (1 - 2 * s + 2 * s * s)); };
  const double cosmap_loss = expected_loss({cosmap(0.25), cosmap(0.8)}, everything);
  CHECK(velocity_loss(values, "cosmap") == Approx(cosmap_loss).epsilon(1e-5));
  CHECK_FALSE(velocity_loss(values, "sigma_sqrt") == Approx(cosmap_loss).epsilon(1e-5));

  values.drop("sigma").set("timestep", lb::tensor<float>({250.0F, 800.0F}, {2}));
  CHECK(velocity_loss(values, "cosmap") == Approx(cosmap_loss).epsilon(1e-5));
  values.drop("timestep");
  CHECK(message_of([&] { velocity_loss(values, "cosmap"); }).find("'sigma' or 'timestep'") !=
        std::string::npos);
  CHECK(velocity_loss(values, "none") == Approx(expected_loss({1, 1}, everything)).epsilon(1e-6));
}

TEST_CASE("velocity_mse honours weight and mask") {
  bind_host();
  lb::Batch values = velocity_values();
  values.set("weight", lb::tensor<float>({0.5F, 3.0F}, {2}));
  CHECK(velocity_loss(values, "none") ==
        Approx(expected_loss({0.5, 3.0}, everything)).epsilon(1e-6));

  // Of the first sample the frames 1 and 2 count, of the second all but the last.
  const std::vector<float> mask = {0, 1, 1, 0, 1, 1, 1, 0};
  const auto by_frame = [&](int64_t i) {
    return double(mask[static_cast<size_t>(i / kPerSample * 4 + i / 4 % 4)]);
  };
  const double masked = expected_loss({0.5, 3.0}, by_frame);
  values.set("mask", lb::tensor(mask, {2, 4}));
  CHECK(velocity_loss(values, "none") == Approx(masked).epsilon(1e-5));
  CHECK_FALSE(velocity_loss(values, "none") ==
              Approx(expected_loss({0.5, 3.0}, everything)).epsilon(1e-3));
  values.set("mask", lb::tensor(mask, {2, 1, 4, 1, 1}));
  CHECK(velocity_loss(values, "none") == Approx(masked).epsilon(1e-5));
  values.set("mask", lb::zeros({2, 4}));
  CHECK(velocity_loss(values, "none") == 0.0);
}

TEST_CASE("velocity_mse has the gradient 2 w (prediction - target) / n") {
  bind_host();
  lb::Batch values = velocity_values();
  values.set("weight", lb::tensor<float>({0.5F, 3.0F}, {2}));
  const lb::Tensor prediction =
      wrap(limbeck::tensor_of(values["prediction"].raw()).clone().requires_grad_(true));
  values.set("prediction", prediction);
  const lb::Tensor loss = basics::VelocityMse({}).loss(plain_step(lb::Batch()), values);
  const lb::Tensor gradient = lb::gradient({loss}, {lb::Tensor()}, {prediction})[0];
  const std::vector<double> p = prediction.detach().to_vector<double>();
  const std::vector<double> t = values["target"].to_vector<double>();
  std::vector<double> expected;
  for (size_t i = 0; i < p.size(); ++i) {
    const double weight = i < kPerSample ? 0.5 : 3.0;
    expected.push_back(2.0 * weight * (p[i] - t[i]) / static_cast<double>(p.size()));
  }
  CHECK(largest_difference(gradient, expected) < 1e-7);
  expected[5] *= 1.01;
  CHECK_FALSE(largest_difference(gradient, expected) < 1e-7);
}

TEST_CASE("velocity_mse refuses shapes that would broadcast") {
  bind_host();
  lb::Batch values = velocity_values();
  values.set("target", lb::zeros({2, 3, 1, 2, 2}));
  CHECK(message_of([&] { velocity_loss(values, "none"); }) ==
        "'prediction' has shape [2, 3, 4, 2, 2] and 'target' [2, 3, 1, 2, 2]; they must be equal");
  values = velocity_values();
  values.set("weight", lb::ones({3}));
  CHECK(message_of([&] { velocity_loss(values, "none"); }).find("'weight' has shape [3]") == 0);
}

TEST_CASE("velocity_mse of bf16 values is computed in f32") {
  bind_host();
  lb::Batch values = velocity_values();
  values.set("prediction", values["prediction"].to(LB_BF16));
  values.set("target", values["target"].to(LB_BF16));
  const lb::Tensor loss = basics::VelocityMse({}).loss(plain_step(lb::Batch()), values);
  CHECK(loss.dtype() == LB_F32);
  values.set("prediction", wave(kSizes, 0.7).to(LB_F64)).set("target", wave(kSizes, 1.3));
  CHECK(basics::VelocityMse({}).loss(plain_step(lb::Batch()), values).dtype() == LB_F64);
}

// ---- flow_noise

namespace {

const std::vector<int64_t> kLatentSizes = {3, 2, 4, 2, 3};
constexpr int64_t kFrame = 2 * 3;

MadeUpModels models_with_statistics() {
  lb::Batch facts;
  facts.set("latents_mean", lb::tensor<float>({0.5F, -1.0F}, {2}));
  facts.set("latents_std", lb::tensor<float>({2.0F, 0.25F}, {2}));
  return MadeUpModels({{0, {nullptr, facts, {}}}});
}

at::Tensor recorded_noise(int64_t frames) {
  return limbeck::tensor_of(wave({3, 2, frames, 2, 3}, 2.1).raw()).clone();
}

lb::Batch prepared(const basics::FlowNoise::Options& options,
                   const lb_models* models,
                   const lb::Batch& facts) {
  lb::Batch batch;
  batch.set("raw_latents", wave(kLatentSizes, 0.9));
  const lb_step step = step_with(models, facts);
  basics::FlowNoise(options).prepare(lb::Step(&step), batch);
  return batch;
}

}  // namespace

TEST_CASE("flow_noise normalises, cuts and mixes as its header says") {
  bind_host();
  const MadeUpModels models = models_with_statistics();
  const Recorded draws({{"flow_noise.noise", recorded_noise(3)},
                        {"flow_noise.timestep", at::tensor({0.0F, 0.25F, 0.7503F})}});
  basics::FlowNoise::Options options;
  options.flow_shift = 3.0;
  lb::Batch facts;
  facts.set("data.num_latent_t", 3.0).set("pipeline.flow_shift", 8.0);
  const lb::Batch batch = prepared(options, models.table(), facts);

  const std::vector<double> sigma = {1.0, 0.9, 0.5};
  CHECK(largest_difference(batch["sigma"], sigma) < 1e-7);
  CHECK(largest_difference(batch["timestep"], {1000.0, 900.0, 500.0}) < 1e-4);
  CHECK(batch["noisy"].sizes() == std::vector<int64_t>{3, 2, 3, 2, 3});

  const std::vector<double> raw = wave(kLatentSizes, 0.9).to_vector<double>();
  const std::vector<double> noise = batch["noise"].to_vector<double>();
  const auto mixed = [&](double mean_0) {
    std::vector<double> latents;
    std::vector<double> noisy;
    for (size_t b = 0; b < 3; ++b) {
      for (size_t c = 0; c < 2; ++c) {
        for (size_t i = 0; i < 3 * kFrame; ++i) {
          const double value = raw[(b * 2 + c) * 4 * kFrame + i];
          latents.push_back(c == 0 ? (value - mean_0) / 2.0 : (value + 1.0) / 0.25);
          noisy.push_back((1.0 - sigma[b]) * latents.back() + sigma[b] * noise[noisy.size()]);
        }
      }
    }
    return std::pair(latents, noisy);
  };
  const auto [latents, noisy] = mixed(0.5);
  CHECK(largest_difference(batch["latents"], latents) < 1e-6);
  CHECK(largest_difference(batch["noisy"], noisy) < 1e-6);
  const auto [wrong_latents, wrong_noisy] = mixed(0.51);
  CHECK_FALSE(largest_difference(batch["latents"], wrong_latents) < 1e-6);
  CHECK_FALSE(largest_difference(batch["noisy"], wrong_noisy) < 1e-6);
}

TEST_CASE("flow_noise takes latents as normalised without a vae, and the pipeline's shift") {
  bind_host();
  const Recorded draws({{"flow_noise.noise", recorded_noise(4)},
                        {"flow_noise.timestep", at::tensor({0.25F, 0.5F, 0.999F})}});
  lb::Batch facts;
  facts.set("pipeline.flow_shift", 5.0);
  const lb::Batch batch = prepared({}, nullptr, facts);
  CHECK(largest_difference(batch["latents"], wave(kLatentSizes, 0.9).to_vector<double>()) == 0.0);
  CHECK(largest_difference(batch["timestep"], {937.5, 833.333333, 4.980080}) < 1e-3);
}

TEST_CASE("flow_noise draws levels by every density") {
  bind_host();
  const auto levels = [](const char* scheme, bool is_discrete) {
    const Recorded draws({{"flow_noise.noise", recorded_noise(4)},
                          {"flow_noise.timestep", at::tensor({0.25F, 0.5F, 0.75F})}});
    basics::FlowNoise::Options options;
    options.weighting_scheme = scheme;
    options.logit_mean = 0.5;
    options.logit_std = 2.0;
    options.discrete = is_discrete;
    return prepared(options, nullptr, lb::Batch())["sigma"];
  };
  CHECK(largest_difference(levels("uniform", false), {0.75, 0.5, 0.25}) < 1e-7);
  CHECK(largest_difference(levels("mode", false), {0.353553, 0.5, 0.646447}) < 1e-6);
  CHECK(largest_difference(levels("mode", true), {0.354, 0.5, 0.647}) < 1.01e-3);
  const auto level = [](double z) { return 1.0 / (1.0 + std::exp(0.5 + 2.0 * z)); };
  CHECK(largest_difference(levels("logit_normal", false), {level(0.25), level(0.5), level(0.75)}) <
        1e-6);
  CHECK_FALSE(largest_difference(levels("logit_normal", false),
                                 {level(0.25), level(0.5), level(0.76)}) < 1e-6);
}

TEST_CASE("flow_noise repeats its draws for a step and changes them with the step") {
  bind_host();
  const auto noisy = [](int64_t number) {
    lb::Batch facts;
    lb::Batch batch;
    batch.set("raw_latents", wave(kLatentSizes, 0.9));
    lb_step step = step_with(nullptr, facts);
    step.step = number;
    basics::FlowNoise({}).prepare(lb::Step(&step), batch);
    return batch["noisy"];
  };
  CHECK(largest_difference(noisy(1), noisy(1).to_vector<double>()) == 0.0);
  CHECK(largest_difference(noisy(1), noisy(2).to_vector<double>()) > 0.1);
}

TEST_CASE("flow_noise says which latents it cannot use") {
  bind_host();
  lb::Batch facts;
  facts.set("data.num_latent_t", 9.0);
  CHECK(message_of([&] {
          prepared({}, nullptr, facts);
        }).find("samples have 4 latent frames and training.data.num_latent_t asks for 9") == 0);
  lb::Batch batch;
  batch.set("raw_latents", lb::zeros({2, 3, 4}));
  CHECK(message_of([&] {
          basics::FlowNoise({}).prepare(plain_step(lb::Batch()), batch);
        }).find("'raw_latents' has shape [2, 3, 4]") == 0);
  lb::Batch statistics;
  statistics.set("latents_mean", lb::zeros({16})).set("latents_std", lb::ones({16}));
  const MadeUpModels models({{0, {nullptr, statistics, {}}}});
  CHECK(message_of([&] { prepared({}, models.table(), lb::Batch()); }) ==
        "'raw_latents' has 2 channels and 'latents_mean' of the vae 16");
}

// ---- text_dropout

namespace {

lb::Batch text_batch() {
  lb::Batch batch;
  batch.set("context", wave({3, 4, 2}, 0.4)).set("context_mask", lb::ones({3, 4}, LB_MASK));
  return batch;
}

std::vector<double> rows_replaced(const std::vector<size_t>& rows,
                                  const std::vector<double>& replacement) {
  std::vector<double> values = wave({3, 4, 2}, 0.4).to_vector<double>();
  for (const size_t row : rows) {
    std::copy(replacement.begin(), replacement.end(),
              values.begin() + static_cast<std::ptrdiff_t>(8 * row));
  }
  return values;
}

}  // namespace

TEST_CASE("text_dropout makes the context of chosen samples zero and keeps the mask") {
  bind_host();
  const Recorded draws({{"text_dropout", at::tensor({0.05F, 0.1F, 0.0999F})}});
  lb::Batch batch = text_batch();
  basics::TextDropout({}).prepare(plain_step(lb::Batch()), batch);
  const std::vector<double> nothing(8, 0.0);
  CHECK(largest_difference(batch["context"], rows_replaced({0, 2}, nothing)) == 0.0);
  CHECK_FALSE(largest_difference(batch["context"], rows_replaced({0}, nothing)) == 0.0);
  CHECK(largest_difference(batch["context_mask"].to(LB_F32), std::vector<double>(12, 1.0)) == 0.0);
}

TEST_CASE("text_dropout puts the empty prompt in the place of the text") {
  bind_host();
  int calls = 0;
  const MadeUpModels models({{0,
                              {[&](const lb::Batch& in, uint32_t flags) {
                                 ++calls;
                                 CHECK(in.texts("prompt") == std::vector<std::string>{""});
                                 CHECK(flags == LB_RUN_NO_GRAD);
                                 lb::Batch out;
                                 out.set("context", lb::tensor<float>({7, 8, 9, 10}, {1, 2, 2}));
                                 out.set("context_mask", lb::ones({1, 2}, LB_MASK));
                                 return out;
                               },
                               lb::Batch(),
                               {}}}});
  const Recorded draws({{"text_dropout", at::tensor({0.5F, 0.0F, 0.5F})}});
  const lb::Batch facts;
  const lb_step step = step_with(models.table(), facts);
  basics::TextDropout::Options options;
  options.mode = "empty_prompt";
  basics::TextDropout hook(options);
  for (int k = 0; k < 2; ++k) {
    lb::Batch batch = text_batch();
    hook.prepare(lb::Step(&step), batch);
    CHECK(largest_difference(batch["context"], rows_replaced({1}, {7, 8, 9, 10, 0, 0, 0, 0})) ==
          0.0);
    CHECK(largest_difference(batch["context_mask"].to(LB_F32),
                             {1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1}) == 0.0);
  }
  CHECK(calls == 1);

  lb::Batch batch = text_batch();
  const Recorded more({{"text_dropout", at::zeros({3})}});
  CHECK(message_of([&] {
          basics::TextDropout(options).prepare(plain_step(facts), batch);
        }).find("needs a text encoder") != std::string::npos);
}

TEST_CASE("text_dropout at rate 0 changes nothing and at rate 1 takes every text") {
  bind_host();
  basics::TextDropout::Options options;
  options.rate = 0.0;
  lb::Batch batch;  // without a context
  basics::TextDropout(options).prepare(plain_step(lb::Batch()), batch);
  CHECK(batch.names().empty());
  options.rate = 1.0;
  batch = text_batch();
  basics::TextDropout(options).prepare(plain_step(lb::Batch()), batch);
  CHECK(largest_difference(batch["context"], std::vector<double>(24, 0.0)) == 0.0);
}

// ---- validation

namespace {

// A student whose velocity leads exactly to one value: x0 = `target` of the text. The text encoder
// gives 0.5 for a prompt, 0.25 for none. The vae shows the first channel.
struct Studio {
  std::vector<std::pair<std::vector<double>, uint32_t>> passes;  // timesteps, flags
  std::vector<lb::Tensor> starts;
  int encodings = 0;
  bool is_averaged = false;
  bool has_text = true;
  bool is_linear = false;  // the velocity is x itself
  int channels = 1;
  int context_width = 0;

  MadeUpModels models() {
    MadeUpModels::Role student;
    student.run = [this](const lb::Batch& in, uint32_t flags) {
      const lb::Tensor x = in["noisy"];
      passes.emplace_back(in["timestep"].to_vector<double>(), flags);
      if (in["timestep"].to_vector<double>()[0] == 1000.0) {
        starts.push_back(x);
      }
      if (is_linear) {
        return lb::Batch().set("velocity", x);
      }
      const lb::Tensor sigma = (in["timestep"] / 1000.0).reshape({-1, 1, 1, 1, 1});
      const lb::Tensor x0 =
          has_text ? in["context"].reshape({-1, 1, 1, 1, 1}) : lb::full({1, 1, 1, 1, 1}, -0.5);
      return lb::Batch().set("velocity", (x - x0) / sigma);
    };
    student.facts.set("latent_channels", 4).set("context.width", context_width);
    if (is_averaged) {
      student.capabilities = {"limbeck.averaged/1"};
    }
    MadeUpModels::Role vae;
    vae.run = [this](const lb::Batch& in, uint32_t) {
      return lb::Batch().set("pixels", in["latents"].narrow(1, 0, channels));
    };
    vae.facts.set("spatial_ratio", 2).set("temporal_ratio", 4);
    MadeUpModels::Role text;
    text.run = [this](const lb::Batch& in, uint32_t) {
      ++encodings;
      std::vector<float> values;
      for (const std::string& prompt : in.texts("prompt")) {
        values.push_back(prompt.empty() ? 0.25F : 0.5F);
      }
      const auto count = static_cast<int64_t>(values.size());
      return lb::Batch().set("context", lb::tensor(values, {count, 1, 1}));
    };
    std::map<uint32_t, MadeUpModels::Role> roles = {{0, student}, {1, vae}};
    if (has_text) {
      roles[2] = text;
    }
    return MadeUpModels(roles);
  }
};

struct ReportedFiles {
  std::vector<std::string> paths;
  std::vector<std::string> titles;  // "name (media type): caption"
  std::map<std::string, double> numbers;
  lb_metrics table{};

  ReportedFiles() {
    table.struct_size = sizeof(table);
    table.ctx = this;
    table.file = [](lb_metrics* metrics, const char* name, const char* media_type, const char* path,
                    const char* caption) {
      auto& self = *static_cast<ReportedFiles*>(metrics->ctx);
      self.paths.emplace_back(path);
      self.titles.push_back(std::string(name) + " (" + media_type + "): " + caption);
    };
    table.scalar = [](lb_metrics* metrics, const char* name, double value, lb_reduce) {
      static_cast<ReportedFiles*>(metrics->ctx)->numbers[name] = value;
    };
  }
};

lb_event event_of(lb_event_kind kind,
                  int64_t step,
                  const MadeUpModels& models,
                  const lb::Batch& facts,
                  ReportedFiles& files) {
  lb_event event{};
  event.struct_size = sizeof(event);
  event.kind = kind;
  event.step = step;
  event.models = models.table();
  event.facts = facts.raw();
  event.metrics = &files.table;
  return event;
}

basics::Validation::Options validation_options() {
  basics::Validation::Options options;
  options.prompts = {"digit 3", "digit 4"};
  options.latent_shape = {4, 3, 5, 6};
  options.sampling_steps = 3;
  options.has_sampling_steps = true;
  return options;
}

lb::Batch facts_in(const Folder& folder) {
  lb::Batch facts;
  facts.set("run.output_dir", folder.path().string());
  return facts;
}

// The byte in the middle of the first frame of the first video.
int shown(const fs::path& png) { return media::read_png(png).at(3 + 1 + 2, 3 + 1 + 2).r; }

}  // namespace

TEST_CASE("validation samples along the shifted levels and writes what the vae shows") {
  bind_host();
  const Folder folder;
  Studio studio;
  const MadeUpModels models = studio.models();
  lb::Batch facts = facts_in(folder);
  facts.set("pipeline.flow_shift", 2.0);
  ReportedFiles files;
  const lb_event event = event_of(LB_ON_VALIDATE, 20, models, facts, files);
  basics::Validation(validation_options()).event(lb::Event(&event));

  REQUIRE(studio.passes.size() == 3);
  const double levels[] = {1000.0, 800.0, 500.0};  // S_2 of 1, 2/3, 1/3
  for (size_t j = 0; j < 3; ++j) {
    REQUIRE(studio.passes[j].first.size() == 2);
    CHECK(studio.passes[j].first[0] == Approx(levels[j]).epsilon(1e-6));
    CHECK(studio.passes[j].second == LB_RUN_NO_GRAD);
  }
  CHECK(studio.encodings == 1);
  const fs::path png = folder.path() / "validation/step_20.png";
  CHECK(shown(png) == media::byte_of(0.5F));
  CHECK_FALSE(shown(png) == media::byte_of(0.52F));
  const media::Image sheet = media::read_png(png);
  CHECK(sheet.width == 3 + (1 + 3 * 7) + 3);
  CHECK(sheet.height == 3 + 2 * (1 + 6 + 3));
  const media::Animation clip = media::read_gif(folder.path() / "validation/step_20.gif");
  CHECK(clip.frames.size() == 3);
  CHECK(clip.frames[0].height == 3 + 2 * (5 + 3));
  CHECK(files.paths == std::vector<std::string>{
                           png.string(), (folder.path() / "validation/step_20.gif").string()});
}

TEST_CASE("validation takes Euler steps") {
  bind_host();
  const Folder folder;
  Studio studio;
  studio.is_linear = true;
  const MadeUpModels models = studio.models();
  lb::Batch facts = facts_in(folder);
  facts.set("pipeline.flow_shift", 2.0);
  ReportedFiles files;
  const lb_event event = event_of(LB_ON_VALIDATE, 1, models, facts, files);
  basics::Validation(validation_options()).event(lb::Event(&event));
  // With v = x a step multiplies by 1 + sigma_next - sigma; the levels are 1, 0.8, 0.5, 0.
  const std::vector<float> noise = studio.starts.at(0).to_vector<float>();
  const media::Image frame = media::read_gif(folder.path() / "validation/step_1.gif").frames[0];
  const auto wrong_pixels = [&](float factor) {
    int wrong = 0;
    for (int y = 0; y < 5; ++y) {
      for (int x = 0; x < 6; ++x) {
        const float value = factor * noise[static_cast<size_t>(6 * y + x)];
        wrong += std::abs(frame.at(3 + x, 3 + y).r - media::byte_of(value)) > 1 ? 1 : 0;
      }
    }
    return wrong;
  };
  CHECK(wrong_pixels(0.8F * 0.7F * 0.5F) == 0);
  CHECK(wrong_pixels(2.0F / 3.0F * 2.0F / 3.0F * 2.0F / 3.0F) > 5);  // the levels without shift
}

TEST_CASE("validation samples a distilled student with fresh noise between its steps") {
  bind_host();
  const Folder folder;
  Studio studio;
  studio.is_linear = true;
  const MadeUpModels models = studio.models();
  lb::Batch facts = facts_in(folder);
  facts.set("pipeline.flow_shift", 2.0);  // of other samplers: a list of timesteps is as it is
  ReportedFiles files;
  const lb_event event = event_of(LB_ON_VALIDATE, 1, models, facts, files);
  basics::Validation::Options options = validation_options();
  options.timesteps = {1000, 600};
  CHECK_THROWS_WITH(basics::Validation{options}, doctest::Contains("place of sampling_steps"));
  options.has_sampling_steps = false;
  basics::Validation(options).event(lb::Event(&event));
  REQUIRE(studio.passes.size() == 2);
  CHECK(studio.passes[1].first[0] == Approx(600.0).epsilon(1e-6));
  CHECK(files.numbers.count("validation/2_steps_video_count") == 1);
  // With v = x the first x0 is 0, so that 0.6 of the fresh noise is left, and then 0.6 - 0.36.
  const auto fresh = lb::Draws(0, 1).normal("validation.renoise", {2, 4, 3, 5, 6});
  const std::vector<float> noise = fresh.to_vector<float>();
  const media::Image frame = media::read_gif(folder.path() / "validation/step_1.gif").frames[0];
  const auto wrong_pixels = [&](const std::vector<float>& values, float factor) {
    int wrong = 0;
    for (int y = 0; y < 5; ++y) {
      for (int x = 0; x < 6; ++x) {
        const float value = factor * values[static_cast<size_t>(6 * y + x)];
        wrong += std::abs(frame.at(3 + x, 3 + y).r - media::byte_of(value)) > 1 ? 1 : 0;
      }
    }
    return wrong;
  };
  CHECK(wrong_pixels(noise, 0.24F) == 0);
  CHECK(wrong_pixels(studio.starts.at(0).to_vector<float>(), 0.24F) > 5);

  for (const std::vector<double>& list : {std::vector<double>{500, 600}, {1001}, {0}}) {
    options.timesteps = list;
    CHECK_THROWS_WITH(basics::Validation{options}, doctest::Contains("must descend"));
  }
}

TEST_CASE("validation guides by u + g (c - u), and skips the second pass at 1") {
  bind_host();
  for (const double g : {0.0, 1.0, 2.0}) {
    const Folder folder;
    Studio studio;
    const MadeUpModels models = studio.models();
    const lb::Batch facts = facts_in(folder);
    ReportedFiles files;
    basics::Validation::Options options = validation_options();
    options.guidance_scale = g;
    options.has_guidance_scale = true;
    const lb_event event = event_of(LB_ON_VALIDATE, 1, models, facts, files);
    basics::Validation(options).event(lb::Event(&event));
    CHECK(studio.passes.size() == (g == 1.0 ? 3 : 6));
    const double guided = 0.25 + g * (0.5 - 0.25);
    CHECK(shown(folder.path() / "validation/step_1.png") ==
          media::byte_of(static_cast<float>(guided)));
    if (g != 1.0) {
      CHECK_FALSE(shown(folder.path() / "validation/step_1.png") == media::byte_of(0.5F));
    }
  }
}

TEST_CASE("validation takes steps and guidance of the pipeline unless told otherwise") {
  bind_host();
  const Folder folder;
  Studio studio;
  const MadeUpModels models = studio.models();
  lb::Batch facts = facts_in(folder);
  facts.set("pipeline.num_inference_steps", 5).set("pipeline.guidance_scale", 2.0);
  ReportedFiles files;
  basics::Validation::Options options = validation_options();
  options.has_sampling_steps = false;
  const lb_event event = event_of(LB_ON_VALIDATE, 1, models, facts, files);
  basics::Validation(options).event(lb::Event(&event));
  CHECK(studio.passes.size() == 10);
}

TEST_CASE("validation starts every video from its own noise, however they are batched") {
  bind_host();
  const Folder folder;
  const lb::Batch facts = facts_in(folder);
  const auto starts = [&](int64_t batch_size, int64_t seed, int64_t step) {
    Studio studio;
    const MadeUpModels models = studio.models();
    ReportedFiles files;
    basics::Validation::Options options = validation_options();
    options.num_videos_per_prompt = 2;
    options.batch_size = batch_size;
    options.seed = seed;
    const lb_event event = event_of(LB_ON_VALIDATE, step, models, facts, files);
    basics::Validation(options).event(lb::Event(&event));
    return lb::cat(studio.starts, 0);
  };
  const lb::Tensor whole = starts(16, 0, 10);
  CHECK(whole.sizes() == std::vector<int64_t>{4, 4, 3, 5, 6});
  CHECK(largest_difference(starts(3, 0, 20), whole.to_vector<double>()) == 0.0);
  CHECK(largest_difference(starts(16, 1, 10), whole.to_vector<double>()) > 0.1);
  CHECK(largest_difference(whole.select(0, 0), whole.select(0, 1).to_vector<double>()) > 0.1);
}

TEST_CASE("validation uses averaged weights where there are some") {
  bind_host();
  for (const bool is_wanted : {true, false}) {
    const Folder folder;
    Studio studio;
    studio.is_averaged = true;
    const MadeUpModels models = studio.models();
    const lb::Batch facts = facts_in(folder);
    ReportedFiles files;
    basics::Validation::Options options = validation_options();
    options.use_ema = is_wanted;
    const lb_event event = event_of(LB_ON_VALIDATE, 1, models, facts, files);
    basics::Validation(options).event(lb::Event(&event));
    CHECK((studio.passes.at(0).second & LB_RUN_AVERAGED) == (is_wanted ? LB_RUN_AVERAGED : 0));
  }
}

TEST_CASE("validation runs before the first step if wanted, not when a run is resumed") {
  bind_host();
  for (const auto& [is_wanted, step, passes] :
       {std::tuple{true, 0, 3}, std::tuple{false, 0, 0}, std::tuple{true, 40, 0}}) {
    const Folder folder;
    Studio studio;
    const MadeUpModels models = studio.models();
    const lb::Batch facts = facts_in(folder);
    ReportedFiles files;
    basics::Validation::Options options = validation_options();
    options.run_at_start = is_wanted;
    const lb_event event = event_of(LB_ON_START, step, models, facts, files);
    basics::Validation(options).event(lb::Event(&event));
    CHECK(studio.passes.size() == static_cast<size_t>(passes));
  }
}

TEST_CASE("validation finds the size of a sample in the facts of the run") {
  bind_host();
  const Folder folder;
  Studio studio;
  const MadeUpModels models = studio.models();
  lb::Batch facts = facts_in(folder);
  ReportedFiles files;
  basics::Validation::Options options = validation_options();
  options.latent_shape.clear();
  const auto run = [&] {
    const lb_event event = event_of(LB_ON_START, 0, models, facts, files);
    basics::Validation(options).event(lb::Event(&event));
  };
  CHECK(message_of(run).find("set latent_shape") != std::string::npos);
  facts.set("data.num_frames", 9).set("data.num_height", 10).set("data.num_width", 12);
  run();
  CHECK(studio.starts.at(0).sizes() == std::vector<int64_t>{2, 4, 3, 5, 6});
  facts.set("data.num_latent_t", 2);
  run();
  CHECK(studio.starts.at(1).size(2) == 2);
  options.latent_shape = {1, 2, 3};
  CHECK(message_of([&] { basics::Validation{options}; }).find("four positive numbers") !=
        std::string::npos);
}

TEST_CASE("validation hands on its pictures with the prompts as caption, and counts them") {
  bind_host();
  const Folder folder;
  Studio studio;
  const MadeUpModels models = studio.models();
  const lb::Batch facts = facts_in(folder);
  ReportedFiles files;
  auto options = validation_options();
  options.num_videos_per_prompt = 2;
  const lb_event event = event_of(LB_ON_VALIDATE, 20, models, facts, files);
  basics::Validation(options).event(lb::Event(&event));
  CHECK(files.titles ==
        std::vector<std::string>{"validation_frames_3_steps (image/png): digit 3 | digit 4",
                                 "validation_videos_3_steps (image/gif): digit 3 | digit 4"});
  CHECK(files.numbers.at("validation/3_steps_video_count") == 4);
  CHECK(files.numbers.at("validation/3_steps_duration_sec") > 0);
}

TEST_CASE("validation says at the start that nothing encodes its prompts") {
  bind_host();
  const Folder folder;
  Studio studio;
  studio.has_text = false;
  studio.context_width = 32;
  const MadeUpModels models = studio.models();
  const lb::Batch facts = facts_in(folder);
  ReportedFiles files;
  const lb_event event = event_of(LB_ON_START, 0, models, facts, files);
  auto options = validation_options();
  options.run_at_start = false;
  const auto said = message_of([&] { basics::Validation(options).event(lb::Event(&event)); });
  CHECK(said.find("add the role 'text_encoder'") != std::string::npos);
  CHECK(studio.passes.empty());
  options.prompts.clear();  // nobody wants to see anything
  basics::Validation(options).event(lb::Event(&event));
}

TEST_CASE("validation works without a text encoder and in colour") {
  bind_host();
  const Folder folder;
  Studio studio;
  studio.has_text = false;
  studio.channels = 3;
  const MadeUpModels models = studio.models();
  const lb::Batch facts = facts_in(folder);
  ReportedFiles files;
  const lb_event event = event_of(LB_ON_VALIDATE, 1, models, facts, files);
  basics::Validation(validation_options()).event(lb::Event(&event));
  CHECK(studio.passes.size() == 3);
  CHECK(shown(folder.path() / "validation/step_1.png") == media::byte_of(-0.5F));
}

TEST_CASE("validation does not take guidance for something that it can leave out") {
  bind_host();
  const Folder folder;
  Studio studio;
  studio.has_text = false;
  const MadeUpModels models = studio.models();
  const lb::Batch facts = facts_in(folder);
  ReportedFiles files;
  basics::Validation::Options options = validation_options();
  options.run_at_start = false;
  options.has_guidance_scale = true;
  const lb_event event = event_of(LB_ON_START, 0, models, facts, files);
  options.guidance_scale = 4.0;
  const auto said = message_of([&] { basics::Validation(options).event(lb::Event(&event)); });
  CHECK(said.find("set guidance_scale = 1") != std::string::npos);
  options.guidance_scale = 1.0;
  basics::Validation(options).event(lb::Event(&event));
}

TEST_CASE("a picture that cannot be written does not end the run") {
  bind_host();
  const Folder folder;
  { std::ofstream(folder.path() / "validation") << "in the way"; }
  Studio studio;
  const MadeUpModels models = studio.models();
  const lb::Batch facts = facts_in(folder);
  ReportedFiles files;
  const lb_event event = event_of(LB_ON_VALIDATE, 1, models, facts, files);
  basics::Validation(validation_options()).event(lb::Event(&event));
  CHECK(files.paths.empty());
}

TEST_CASE("sample() writes each prompt and all of them together") {
  bind_host();
  const Folder folder;
  Studio studio;
  const MadeUpModels models = studio.models();
  const lb::Batch facts = facts_in(folder);
  ReportedFiles files;
  const lb_event event = event_of(LB_ON_VALIDATE, 0, models, facts, files);
  const fs::path output = folder.path() / "out";
  lb::Batch prompts;
  prompts.set("prompt", std::vector<std::string>{"Digit 7", "digit 8"});
  prompts.set("output", output.string());
  basics::Validation::Options options = validation_options();
  options.prompts.clear();
  basics::Validation validation(options);
  validation.event(lb::Event(&event));  // nothing to show by itself
  CHECK(studio.passes.empty());
  validation.sample(lb::Event(&event), prompts);
  for (const char* name : {"000_digit_7.png", "000_digit_7.gif", "001_digit_8.png",
                           "001_digit_8.gif", "samples.png", "samples.gif"}) {
    CHECK_MESSAGE(fs::exists(output / name), name);
  }
  CHECK(shown(output / "001_digit_8.png") == media::byte_of(0.5F));
  CHECK(files.paths.empty());
}

// ---- jsonl

TEST_CASE("the jsonl tracker keeps metrics.jsonl in its folder") {
  bind_host();
  const Folder folder;
  const std::string directory = folder.path().string();
  const lb_tracked_run run = {sizeof(lb_tracked_run), 0, "id", "name", directory.c_str(), "", 1};
  basics::Jsonl tracker(run);
  const char* names[] = {"loss"};
  const double values[] = {0.5};
  tracker.scalars(1, {names, 1}, {values, 1});
  tracker.file(1, "validation", "image/png", "/x.png", "digit 3");
  std::ifstream file(folder.path() / "metrics.jsonl");
  std::string line;
  std::getline(file, line);
  CHECK(line.find("{\"step\":1,\"time\":") == 0);
  CHECK(line.find(",\"loss\":0.5}") != std::string::npos);
  std::getline(file, line);
  CHECK(line.find("\"file\":\"/x.png\"") != std::string::npos);
}

// ---- tensorboard

TEST_CASE("the tensorboard tracker keeps numbers, pictures, captions and the manifest") {
  bind_host();
  const Folder folder;
  const std::string directory = folder.path().string();
  const lb_tracked_run run = {sizeof(lb_tracked_run), 0, "id", "name", directory.c_str(),
                              "[run]\nseed = 3\n",    1};
  const media::Image image(4, 4, media::Rgb{1, 2, 3});
  media::write_png(folder.path() / "a.png", image);
  basics::Tensorboard tracker(run);
  const char* names[] = {"loss"};
  const double values[] = {0.5};
  tracker.scalars(1, {names, 1}, {values, 1});
  for (int step = 1; step <= 2; ++step) {
    tracker.file(step, "validation", "image/png", (folder.path() / "a.png").string(), "digit 3");
  }
  tracker.file(2, "clip", "video/mp4", "/x.mp4", "");

  std::string events;
  for (const auto& entry : fs::directory_iterator(folder.path() / "tensorboard")) {
    std::ifstream file(entry.path(), std::ios::binary);
    events.append(std::istreambuf_iterator<char>(file), {});
  }
  const auto count = [&](const std::string& text) {
    int found = 0;
    for (auto at = events.find(text); at != std::string::npos; at = events.find(text, at + 1)) {
      ++found;
    }
    return found;
  };
  CHECK(count("loss") == 1);
  CHECK(count("    [run]\n    seed = 3\n") == 1);
  CHECK(count("validation/caption") == 1);  // once, for it did not change
  CHECK(count("digit 3") == 3);             // there, and beside each picture
  CHECK(count("video/mp4: `/x.mp4`") == 1);
  CHECK(count("PNG") == 2);
}

TEST_CASE("the tensorboard tracker loses a picture that is gone, and keeps the rest") {
  bind_host();
  const Folder folder;
  const std::string directory = folder.path().string();
  const lb_tracked_run run = {sizeof(lb_tracked_run), 0, "id", "name", directory.c_str(), "", 1};
  basics::Tensorboard tracker(run);
  lb_code code = LB_OK;
  try {
    tracker.file(1, "validation", "image/png", directory + "/gone.png", "");
  } catch (const lb::Error& error) {
    code = error.code;
    CHECK(std::string(error.what()).find("gone.png': No such file") != std::string::npos);
  }
  CHECK(code == LB_DATA_LOSS);  // LB_UNAVAILABLE would have it offered for ever
}

TEST_CASE("trackers that cannot write into their folder say so when they are opened") {
  bind_host();
  const Folder folder;
  const std::string directory = (folder.path() / "file").string();
  { std::ofstream(directory) << "in the way"; }
  const lb_tracked_run run = {sizeof(lb_tracked_run), 0, "id", "name", directory.c_str(), "", 1};
  CHECK(message_of([&] { basics::Tensorboard{run}; }) ==
        "cannot create the folder '" + directory + "/tensorboard': Not a directory");
  CHECK(message_of([&] { basics::Jsonl{run}; }) ==
        "cannot create '" + directory + "/metrics.jsonl': Not a directory");
}
