// SPDX-License-Identifier: Apache-2.0
// Distribution matching: hand values, invariances, and the closed form for Gaussian data.
#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ATen.h>

#include <limbeck/diffusion/convert.hpp>
#include <limbeck/diffusion/guidance.hpp>
#include <limbeck/diffusion/score.hpp>

#include "core/plugin/host_table.hpp"
#include "core/tensor/batch.hpp"
#include "core/tensor/handle.hpp"
#include "core/tensor/tensor_api.hpp"
#include "fixtures/gaussian.hpp"

#include <doctest/doctest.h>

namespace {

using limbeck::testing::Gaussian;
using namespace lb::diffusion;

void start_host() {
  limbeck::provide("limbeck.tensor/1", &limbeck::tensor_api());
  limbeck::provide("limbeck.dispatch/1", &limbeck::dispatch_api());
  limbeck::provide("limbeck.batch/1", &limbeck::batch_api());
  REQUIRE(lb::bind(&limbeck::host_table()) == nullptr);
}

lb::Tensor row(std::vector<double> values) {
  const auto count = static_cast<int64_t>(values.size());
  return lb::tensor(values, {1, count});
}

bool near(const lb::Tensor& got, const std::vector<double>& expected, double tolerance = 1e-12) {
  const auto values = got.to_vector<double>();
  if (values.size() != expected.size()) {
    return false;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    // Negated: also false for nan.
    if (!(std::abs(values[i] - expected[i]) <= tolerance)) {
      return false;
    }
  }
  return true;
}

// d loss / d x.
lb::Tensor slope(lb::Tensor x, const lb::Tensor& direction) {
  auto leaf = limbeck::tensor_of(x.raw()).detach().clone().requires_grad_(true);
  const auto input = lb::Tensor::take(limbeck::give(leaf));
  return lb::gradient({direction_loss(input, direction)}, {lb::Tensor()}, {input})[0];
}

// The generator N(mu, tau^2), its perfect network and that of the data, all at one level: expected
// direction, and expected direction times z for x = mu + tau z. The direction is linear in z and
// the noise, so four points with the right moments give the expectations exactly.
struct Expected {
  double of_direction = 0;
  double times_z = 0;
};
enum class Change { kNone, kSign };
Expected expected(const Gaussian& generator, const Gaussian& data, double sigma, Change change) {
  const auto z = row({1, 1, -1, -1});
  const auto noise = row({1, -1, 1, -1});
  const auto x = generator.mean + generator.deviation * z;
  const auto noisy = add_noise(x, noise, sigma);
  auto fake = generator.x0(noisy, sigma);
  auto real = data.x0(noisy, sigma);
  if (change == Change::kSign) {
    std::swap(fake, real);
  }
  const auto direction = score_difference(x, fake, real, ScoreNorm::kNone).direction;
  return {direction.mean().item(), (direction * z).mean().item()};
}

}  // namespace

TEST_CASE("score: direction, normaliser, loss and gradient have their hand values") {
  start_host();
  const auto x = row({0, 0});
  const auto real = row({1, -3});
  const auto fake = row({2, -1});
  const auto score = score_difference(x, fake, real, ScoreNorm::kSample);
  CHECK(near(score.norm, {2}));
  CHECK(near(score.direction, {0.5, 1}));
  CHECK(near(direction_loss(x, score.direction), {0.3125}));
  CHECK(near(slope(x, score.direction), {0.25, 0.5}));
  // Without the normaliser, with the sign turned round, and with guidance counted as extra.
  CHECK_FALSE(near(score_difference(x, fake, real, ScoreNorm::kNone).direction, {0.5, 1}, 0.1));
  CHECK_FALSE(near(score_difference(x, real, fake, ScoreNorm::kSample).direction, {0.5, 1}, 0.1));

  const auto direction = row({1, -2, 3, 0});
  CHECK(near(direction_loss(row({7, 8, 9, 1e9}), direction), {1.75}));
  CHECK(near(slope(row({7, 8, 9, 1e9}), direction), {0.25, -0.5, 0.75, 0}));
}

TEST_CASE("score: with the teacher as critic only guidance is left, in the standard convention") {
  start_host();
  const auto x = row({0, 2});
  const auto conditional = row({1, -3});
  const auto unconditional = row({0.5, -1});
  const auto direction = [&](double scale) {
    const auto real = guide(unconditional, conditional, scale);
    return score_difference(x, conditional, real, ScoreNorm::kSample).direction;
  };
  CHECK(near(direction(1), {0, 0}));
  // real = [2.5, -9], n = (2.5 + 11) / 2; -(4 - 1) (c - u) / n.
  CHECK(near(direction(4), {-1.5 / 6.75, 6 / 6.75}));
  CHECK(near(direction(scale_of_extra(3)), {-1.5 / 6.75, 6 / 6.75}));
  CHECK_FALSE(near(direction(3), {-1.5 / 6.75, 6 / 6.75}, 1e-2));
}

TEST_CASE("score: a common factor and a common offset leave the direction alone") {
  start_host();
  const auto x = row({0.3, -0.2, 1});
  const auto fake = row({0.1, 0.4, 2});
  const auto real = row({1.3, -2.2, 0.5});
  const auto base = score_difference(x, fake, real, ScoreNorm::kSample).direction;
  const auto values = base.to_vector<double>();
  CHECK(near(score_difference(x * 3, fake * 3, real * 3, ScoreNorm::kSample).direction, values));
  CHECK(near(score_difference(x + 5, fake + 5, real + 5, ScoreNorm::kSample).direction, values));
  CHECK_FALSE(
      near(score_difference(x * 3, fake * 3, real * 3, ScoreNorm::kNone).direction, values, 0.1));
}

TEST_CASE("score: the normaliser belongs to a sample, a frame or the batch, and has a floor") {
  start_host();
  const std::vector<double> ones(8, 1.0);
  const auto real = lb::tensor<double>({1, 1, 3, 3, 10, 10, 30, 30}, {2, 1, 2, 1, 2});
  const auto x = lb::zeros_like(real);
  CHECK(near(score_norm(x, real, ScoreNorm::kSample), {2, 20}));
  CHECK(near(score_norm(x, real, ScoreNorm::kFrame), {1, 3, 10, 30}));
  CHECK(near(score_norm(x, real, ScoreNorm::kBatch), {11}));
  CHECK(near(score_norm(x, real, ScoreNorm::kNone), {1}));
  CHECK(near(score_norm(x, x, ScoreNorm::kSample), {kLeastNorm, kLeastNorm}));
  const auto nothing = score_difference(x, x, x, ScoreNorm::kSample);
  CHECK(near(nothing.direction, std::vector<double>(8, 0.0), 0));
  CHECK(near(nothing.nonfinite, {0}));
}

TEST_CASE("score: what is not finite moves nothing, is counted, and stays in its sample") {
  start_host();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const auto x = lb::tensor<double>({0, 0, 0, 0}, {2, 2});
  const auto fake = lb::tensor<double>({2, -1, 2, -1}, {2, 2});
  const auto bad = lb::tensor<double>({kNan, -3, 1, -3}, {2, 2});
  const auto score = score_difference(x, fake, bad, ScoreNorm::kSample);
  CHECK(near(score.direction, {0, 0, 0.5, 1}));
  CHECK(near(score.nonfinite, {2}));
  const auto infinite = lb::tensor<double>({kInf, -1, 2, -1}, {2, 2});
  const auto real = lb::tensor<double>({1, -3, 1, -3}, {2, 2});
  CHECK(near(score_difference(x, infinite, real, ScoreNorm::kSample).direction, {0, 1, 0.5, 1}));
  CHECK(near(score_difference(x, infinite, real, ScoreNorm::kSample).nonfinite, {1}));
}

TEST_CASE("score: 16-bit operands are compared in 32 bits, 64-bit ones in 64") {
  start_host();
  // 1 + 2^-7 and 1 are neighbours in bf16; their half is not representable beside 1.
  const auto one = lb::full({1, 2}, 1.0, LB_BF16);
  const auto next = lb::full({1, 2}, 1.0078125, LB_BF16);
  const auto x = lb::full({1, 2}, 4.0, LB_BF16);
  const auto score = score_difference(x, next, one, ScoreNorm::kSample);
  CHECK(score.direction.dtype() == LB_F32);
  CHECK(near(score.direction, {0.0078125 / 3, 0.0078125 / 3}, 1e-9));
  CHECK(direction_loss(x, score.direction).dtype() == LB_F32);
  CHECK(score_difference(x.to(LB_F64), next, one, ScoreNorm::kSample).direction.dtype() == LB_F64);
}

TEST_CASE("score: expected directions of Gaussian generators have their closed form") {
  start_host();
  struct Case {
    Gaussian generator, data;
    double sigma, direction, times_z;
  };
  for (const auto& c :
       {Case{{1, 1}, {0, 1}, 0.5, 0.5, 0}, Case{{2, 0.5}, {-1, 1.5}, 0.8, 2.630137, -0.053952},
        Case{{0, 2}, {0, 1}, 0.5, 0, 0.6}}) {
    const auto got = expected(c.generator, c.data, c.sigma, Change::kNone);
    CHECK(std::abs(got.of_direction - c.direction) < 1e-6);
    CHECK(std::abs(got.times_z - c.times_z) < 1e-6);
    const auto turned = expected(c.generator, c.data, c.sigma, Change::kSign);
    CHECK(std::abs(turned.of_direction - c.direction) + std::abs(turned.times_z - c.times_z) >
          0.05);
  }
}

TEST_CASE("score: descending along it carries a Gaussian generator to the data") {
  start_host();
  at::manual_seed(3);
  const auto draw = [](int64_t count) {
    return lb::Tensor::take(limbeck::give(at::randn({1, count}, at::kDouble)));
  };
  const Gaussian data{0, 1};
  const auto descend = [&](ScoreNorm scope, double sign) {
    Gaussian generator{2, 0.5};
    for (int i = 0; i < 400; ++i) {
      constexpr int64_t kElements = 512;
      constexpr double kRate = 0.1;
      const auto z = draw(kElements);
      const double sigma =
          0.02 + 0.96 * (i * 0.6180339887498949 - std::floor(i * 0.6180339887498949));
      const auto x = generator.mean + generator.deviation * z;
      const auto noisy = add_noise(x, draw(kElements), sigma);
      const auto direction =
          score_difference(x, generator.x0(noisy, sigma), data.x0(noisy, sigma), scope).direction;
      const auto gradient = slope(x, direction);
      generator.mean -= sign * kRate * gradient.sum().item();
      generator.deviation -= sign * kRate * (gradient * z).sum().item();
    }
    return generator;
  };
  for (const auto scope : {ScoreNorm::kSample, ScoreNorm::kNone}) {
    const auto end = descend(scope, 1);
    CHECK(std::abs(end.mean) < 0.005);
    CHECK(std::abs(end.deviation - 1) < 0.005);
  }
  CHECK_FALSE(std::abs(descend(ScoreNorm::kSample, -1).mean) < 1);
}

TEST_CASE("score: levels come from a shifted grid and are clamped") {
  start_host();
  CHECK(score_level(0.25, 1, 0, 1) == doctest::Approx(0.25).epsilon(1e-15));
  CHECK(score_level(0.7509, 3, 0, 1) == doctest::Approx(0.9).epsilon(1e-12));
  CHECK(score_level(0.0001, 5, 0.02, 0.98) == doctest::Approx(0.02).epsilon(1e-15));
  CHECK(score_level(0.9999, 5, 0.02, 0.98) == doctest::Approx(0.98).epsilon(1e-15));
  // Shift 5 and bounds 0.02 and 0.98 put 9.2 and 0.5 % of the places onto the bounds.
  int at_high = 0;
  int at_low = 0;
  for (int k = 0; k < 1000; ++k) {
    const double level = score_level((k + 0.5) / 1000, 5, 0.02, 0.98);
    at_high += level == 0.98 ? 1 : 0;
    at_low += level == 0.02 ? 1 : 0;
  }
  CHECK(at_high == 92);
  CHECK(at_low == 5);
  const auto tensor = score_level(lb::tensor<double>({0.25, 0.7509, 0.0001}, {3}), 3, 0.02, 0.98);
  CHECK(near(tensor, {0.5, 0.9, 0.02}));
}
