// SPDX-License-Identifier: Apache-2.0
// The quickstart's networks and data set against closed forms, on the host's own services.
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <limbeck/dataset.hpp>

#include "core/plugin/host_table.hpp"
#include "core/tensor/batch.hpp"
#include "core/tensor/handle.hpp"
#include "core/tensor/tensor_api.hpp"
#include "quickstart/digit_clips.hpp"
#include "quickstart/digit_judge.hpp"
#include "quickstart/digit_table.hpp"
#include "quickstart/digits.hpp"
#include "quickstart/pixel_shuffle.hpp"

#include <doctest/doctest.h>

using doctest::Approx;

namespace {

constexpr const char* kDigits = LIMBECK_SOURCE_DIR "/configs/data/optdigits.csv";

void bind_services() {
  limbeck::provide("limbeck.tensor/1", &limbeck::tensor_api());
  limbeck::provide("limbeck.dispatch/1", &limbeck::dispatch_api());
  limbeck::provide("limbeck.batch/1", &limbeck::batch_api());
  REQUIRE(lb::bind(&limbeck::host_table()) == nullptr);
}

// Declares parameters and keeps them: weights 0.01 cos(i + parameter), biases 0.1.
struct Weights {
  std::vector<at::Tensor> tensors;
  lb_builder table{};

  Weights() {
    table.struct_size = sizeof(table);
    table.ctx = this;
    table.param = [](lb_builder* builder, lb_unit, const lb_param_spec* spec,
                     lb_param* out) -> lb_status* {
      auto& all = static_cast<Weights*>(builder->ctx)->tensors;
      *out = static_cast<lb_param>(all.size());
      const at::IntArrayRef sizes(spec->sizes, spec->ndim);
      const auto i = at::arange(c10::multiply_integers(sizes), at::kFloat).reshape(sizes);
      all.push_back(spec->ndim == 1 ? at::full(sizes, 0.1)
                                    : 0.05 * at::cos(i + static_cast<double>(all.size())));
      return nullptr;
    };
  }
};

// Runs bodies at once on these weights.
struct FakeUnits {
  const Weights& weights;
  lb_units table{};

  explicit FakeUnits(const Weights& w) : weights(w) {
    table.struct_size = sizeof(table);
    table.dtype = LB_F32;
    table.ctx = this;
    table.run = [](const lb_units* units, lb_unit, const lb_body* body, lb_tensor* const* in,
                   uint32_t n_in, lb_tensor** out, uint32_t n_out) -> lb_status* {
      static const lb_ops ops{sizeof(lb_ops), 0, linear, nullptr};
      const auto lent =
          limbeck::lend_all(static_cast<const FakeUnits*>(units->ctx)->weights.tensors);
      lb_unit_call call{};
      call.struct_size = sizeof(call);
      call.params = lent.data();
      call.n_params = static_cast<uint32_t>(lent.size());
      call.in = in;
      call.n_in = n_in;
      call.out = out;
      call.n_out = n_out;
      call.ops = &ops;
      auto* status = body->run(body->self, &call);
      body->release(body->self);
      return status;
    };
  }

  static lb_status* linear(
      const lb_unit_call* call, lb_param weight, lb_param bias, lb_tensor* x, lb_tensor** out) {
    *out = limbeck::give(at::linear(limbeck::tensor_of(x), limbeck::tensor_of(call->params[weight]),
                                    limbeck::tensor_of(call->params[bias])));
    return nullptr;
  }
};

const at::Tensor& at_tensor(const lb::Tensor& tensor) { return limbeck::tensor_of(tensor.raw()); }
lb::Tensor lb_tensor_of(at::Tensor tensor) {
  return lb::Tensor::take(limbeck::give(std::move(tensor)));
}

lb::Batch run(lb::Network& network, const lb::Batch& in) {
  static const Weights none;
  const FakeUnits units(none);
  lb::Batch out;
  network.forward(lb::Units(&units.table), in, out);
  return out;
}

}  // namespace

TEST_CASE("the VAE moves each pixel of a block to its channel") {
  bind_services();
  Weights weights;
  quickstart::PixelShuffle vae({}, lb::Builder(&weights.table));
  lb::Batch in;
  const auto pixels = at::arange(2 * 3 * 4 * 6, at::kFloat).reshape({2, 1, 3, 4, 6});
  in.set("pixels", lb_tensor_of(pixels));
  const auto out = run(vae, in);
  const auto raw = at_tensor(out["raw_latents"]);
  REQUIRE(raw.sizes() == at::IntArrayRef({2, 4, 3, 2, 3}));
  for (int64_t c = 0; c < 4; ++c) {
    const auto expected = pixels.select(1, 0).slice(2, c / 2, 4, 2).slice(3, c % 2, 6, 2);
    CHECK(raw.select(1, c).equal(expected));
    CHECK_FALSE(raw.select(1, 3 - c).equal(expected));
  }
  const double mean[] = {-0.6868, -0.7061, -0.6768, -0.6960};
  const double deviation[] = {0.6208, 0.6002, 0.6384, 0.6113};
  const auto latents = at_tensor(out["latents"]);
  for (int64_t c = 0; c < 4; ++c) {
    CHECK(latents.select(1, c).allclose((raw.select(1, c) - mean[c]) / deviation[c], 1e-6));
    CHECK_FALSE(latents.select(1, c).allclose((raw.select(1, c) - mean[3 - c]) / deviation[c]));
  }
  lb::Batch back;
  back.set("latents", out["latents"]);
  CHECK(at_tensor(run(vae, back)["pixels"]).allclose(pixels, 1e-6, 1e-5));
}

TEST_CASE("the VAE's statistics are those of the first 2000 training clips") {
  bind_services();
  Weights weights;
  quickstart::PixelShuffle vae({}, lb::Builder(&weights.table));
  const quickstart::Clips clips(quickstart::read_digits(kDigits), quickstart::Split::kTrain);
  auto pixels = at::empty({2000, 1, 6, 8, 16});
  for (int64_t clip = 0; clip < 2000; ++clip) {
    clips.draw(clip, pixels[clip].data_ptr<float>());
  }
  lb::Batch in;
  in.set("pixels", lb_tensor_of(pixels));
  const auto raw = at_tensor(run(vae, in)["raw_latents"]);
  lb::Batch facts;
  vae.describe(facts);
  CHECK(at_tensor(facts["latents_mean"]).allclose(raw.mean({0, 2, 3, 4}), 0, 6e-5));
  CHECK(at_tensor(facts["latents_std"]).allclose(raw.std({0, 2, 3, 4}), 0, 6e-5));
  CHECK_FALSE(at_tensor(facts["latents_std"]).allclose(1.001 * raw.std({0, 2, 3, 4}), 0, 6e-5));
}

TEST_CASE("the VAE refuses odd sizes and statistics of another length") {
  bind_services();
  Weights weights;
  quickstart::PixelShuffle vae({}, lb::Builder(&weights.table));
  lb::Batch in;
  in.set("pixels", lb_tensor_of(at::zeros({1, 1, 2, 3, 4})));
  CHECK_THROWS_WITH_AS(run(vae, in), doctest::Contains("[1, 1, 2, 3, 4]"), lb::Error);
  quickstart::PixelShuffle::Options three;
  three.mean = {0, 0, 0};
  CHECK_THROWS_AS(quickstart::PixelShuffle(three, lb::Builder(&weights.table)), lb::Error);
}

TEST_CASE("prompts are rows of a fixed table and the empty prompt is zeros") {
  bind_services();
  Weights weights;
  quickstart::DigitTable encoder{lb::Builder(&weights.table)};
  lb::Batch in;
  in.set("prompt", std::vector<std::string>{"digit 3", "", "digit 3", "digit 4"});
  const auto out = run(encoder, in);
  const auto context = at_tensor(out["context"]);
  REQUIRE(context.sizes() == at::IntArrayRef({4, 4, 32}));
  CHECK(context[0].equal(context[2]));
  CHECK_FALSE(context[0].equal(context[3]));
  CHECK(context[1].abs().max().item<double>() == 0);
  CHECK(at_tensor(out["context_mask"]).equal(at::ones({4, 4})));
  in.set("prompt", "three");
  CHECK_THROWS_WITH_AS(run(encoder, in), doctest::Contains("'three'"), lb::Error);
}

TEST_CASE("the table of prompts is standard normal") {
  const auto table = quickstart::prompt_table();
  REQUIRE(table.size() == 1280);
  double sum = 0;
  double squares = 0;
  double fourth = 0;
  for (const float value : table) {
    sum += value;
    squares += double{value} * value;
    fourth += std::pow(double{value}, 4);
  }
  // Four standard errors of 1280 numbers.
  CHECK(std::abs(sum / 1280) < 0.112);
  CHECK(std::abs(squares / 1280 - 1) < 0.158);
  CHECK(std::abs(fourth / 1280 - 3) < 1.1);
  CHECK(table == quickstart::prompt_table());
}

TEST_CASE("the judge is its two convolutions and two linear layers") {
  bind_services();
  Weights weights;
  quickstart::DigitJudge judge({}, lb::Builder(&weights.table));
  int64_t parameters = 0;
  for (const auto& tensor : weights.tensors) {
    parameters += tensor.numel();
  }
  CHECK(parameters == 71050);

  const auto pixels = at::sin(at::arange(3 * 2 * 128, at::kFloat)).reshape({3, 1, 2, 8, 16});
  lb::Batch in;
  in.set("pixels", lb_tensor_of(pixels));
  in.set("prompt", std::vector<std::string>{"digit 0", "digit 9", "digit 5"});
  const FakeUnits units(weights);
  lb::Batch out;
  judge.forward(lb::Units(&units.table), in, out);

  const auto& w = weights.tensors;
  const auto frames = pixels.reshape({6, 1, 8, 16});
  auto x = at::relu(at::conv2d(frames, w[0], w[1], 1, 1));
  x = at::relu(at::conv2d(x, w[2], w[3], 2, 1));
  const auto features = at::relu(at::linear(x.flatten(1), w[4], w[5])).reshape({3, 2, 64});
  const auto logits = at::linear(features, w[6], w[7]);
  const auto probabilities = at::softmax(logits, -1).mean(1);
  CHECK(at_tensor(out["features"]).allclose(features));
  CHECK(at_tensor(out["frame_logits"]).allclose(logits));
  CHECK(at_tensor(out["probabilities"]).allclose(probabilities));
  const auto reward = at_tensor(out["reward"]);
  const int64_t digits[] = {0, 9, 5};
  for (int64_t i = 0; i < 3; ++i) {
    CHECK(reward[i].item<double>() == Approx(probabilities[i][digits[i]].item<double>()));
    CHECK(reward[i].item<double>() != Approx(probabilities[i][digits[i] ^ 1].item<double>()));
  }
}

TEST_CASE("the judge rewards a digit only") {
  bind_services();
  Weights weights;
  quickstart::DigitJudge judge({}, lb::Builder(&weights.table));
  const FakeUnits units(weights);
  lb::Batch in;
  in.set("pixels", lb_tensor_of(at::zeros({1, 1, 6, 8, 16})));
  lb::Batch out;
  judge.forward(lb::Units(&units.table), in, out);
  CHECK_FALSE(out.has("reward"));
  in.set("prompt", "");
  CHECK_THROWS_WITH_AS(judge.forward(lb::Units(&units.table), in, out),
                       doctest::Contains("no digit to reward"), lb::Error);
  in.set("pixels", lb_tensor_of(at::zeros({1, 1, 6, 8, 8})));
  CHECK_THROWS_WITH_AS(judge.forward(lb::Units(&units.table), in, out),
                       doctest::Contains("[1, 1, 6, 8, 8]"), lb::Error);
}

TEST_CASE("the data set draws clips with caption and label") {
  bind_services();
  lb_source source{};
  source.struct_size = sizeof(source);
  quickstart::DigitClips clips({kDigits, "train"}, source);
  CHECK(clips.length() == 6472);
  CHECK(clips.fields().size() == 3);
  lb::Batch sample;
  clips.read(4, sample);
  CHECK(sample.text("caption") == "digit 1");
  CHECK(sample["label"].item() == 1);
  CHECK(sample["label"].dim() == 0);
  const auto pixels = at_tensor(sample["pixels"]);
  REQUIRE(pixels.sizes() == at::IntArrayRef({1, 6, 8, 16}));
  std::vector<float> expected(quickstart::kClipPixels);
  const quickstart::Clips drawn(quickstart::read_digits(kDigits), quickstart::Split::kTrain);
  drawn.draw(4, expected.data());
  CHECK(pixels.equal(at::from_blob(expected.data(), {1, 6, 8, 16})));
  drawn.draw(3, expected.data());
  CHECK_FALSE(pixels.equal(at::from_blob(expected.data(), {1, 6, 8, 16})));
  quickstart::DigitClips held_out({kDigits, "held_out"}, source);
  CHECK(held_out.length() == 358);
}
