// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <vector>

#include <ATen/ATen.h>

#include "core/optim/optimizer.hpp"
#include "toy_network.hpp"

#include <doctest/doctest.h>

using namespace limbeck;
using limbeck::testing::toy_spec;

namespace {

// A role whose first three master weights are the golden ones.
struct Fixture {
  explicit Fixture(RoleSpec spec) : role(spec, Mesh()) {
    role.allocate();
    const at::NoGradGuard no_grad;
    role.master().zero_();
    set(role.master(), {1, -2, 0.5});
    role.reset_average();
  }

  static void set(at::Tensor& flat, const std::vector<double>& values) {
    const at::NoGradGuard no_grad;
    flat.narrow(0, 0, 3).copy_(at::tensor(values, at::kDouble));
  }

  // Gradients as after a backward that reached every leaf.
  void put_grad(const std::vector<double>& values) {
    set(role.grad(), values);
    at::Tensor sum = at::zeros({});
    for (const auto& leaf : role.leaves()) {
      sum = sum + leaf.sum() * 0;
    }
    sum.backward();
  }

  Role role;
};

RoleSpec golden_spec() {
  auto spec = toy_spec(true);
  spec.optimizer.learning_rate = 1e-3;
  spec.optimizer.weight_decay = 0.01;
  return spec;
}

double worst(const at::Tensor& flat, const std::vector<double>& expected) {
  const auto first = flat.narrow(0, 0, 3).to(at::kDouble);
  return (first - at::tensor(expected, at::kDouble)).abs().max().item<double>();
}

// Master weights after `count` updates with gradients k (0.1, -0.2, 0.3).
at::Tensor after(RoleSpec spec, int64_t count) {
  Fixture fixture(std::move(spec));
  RoleOptimizer optimizer(fixture.role, 100);
  for (int64_t k = 1; k <= count; ++k) {
    const auto scale = static_cast<double>(k);
    fixture.put_grad({0.1 * scale, -0.2 * scale, 0.3 * scale});
    optimizer.update(k, 1.0);
    optimizer.clear_grad();
  }
  return fixture.role.master().clone();
}

const std::vector<double> kAfterOne = {0.99898999, -1.99897993, 0.498995006};
const std::vector<double> kAfterThree = {0.997046769, -1.99701667, 0.497061849};

}  // namespace

TEST_CASE("adamw: golden values after one and three updates") {
  CHECK(worst(after(golden_spec(), 1), kAfterOne) < 1e-7);
  CHECK(worst(after(golden_spec(), 3), kAfterThree) < 2e-7);
}

TEST_CASE("adamw: a changed term does not pass for the golden values") {
  auto spec = golden_spec();
  spec.optimizer.weight_decay = 0.011;
  CHECK(worst(after(spec, 3), kAfterThree) > 1e-6);
  spec = golden_spec();
  spec.optimizer.beta2 = 0.9;
  CHECK(worst(after(spec, 3), kAfterThree) > 1e-6);
  spec = golden_spec();
  spec.optimizer.eps = 1e-3;
  CHECK(worst(after(spec, 3), kAfterThree) > 1e-6);
}

TEST_CASE("adamw: double precision follows the formula") {
  auto spec = golden_spec();
  spec.dtype = Precision::kFloat64;
  double p = 0.5, m = 0, v = 0;
  for (int64_t k = 1; k <= 3; ++k) {
    const double g = 0.3 * static_cast<double>(k);
    p -= 1e-3 * 0.01 * p;
    m += 0.1 * (g - m);
    v = 0.999 * v + 0.001 * g * g;
    const double kk = static_cast<double>(k);
    p -= 1e-3 / (1 - std::pow(0.9, kk)) * m /
         (std::sqrt(v) / std::sqrt(1 - std::pow(0.999, kk)) + 1e-8);
  }
  CHECK(std::abs(after(spec, 3)[2].item<double>() - p) < 1e-14);
}

TEST_CASE("adamw: flagged parameters are not decayed when the manifest says so") {
  for (const bool decays : {true, false}) {
    auto spec = golden_spec();
    spec.optimizer.decays_flagged = decays;
    Fixture fixture(spec);
    const auto* bias = fixture.role.layout().find("b1");
    {
      const at::NoGradGuard no_grad;
      fixture.role.master().fill_(1.0);
    }
    fixture.put_grad({0, 0, 0});
    RoleOptimizer optimizer(fixture.role, 100);
    optimizer.update(1, 1.0);
    CHECK(fixture.role.master()[0].item<float>() == doctest::Approx(1.0 - 1e-5));
    CHECK(fixture.role.master()[bias->offset].item<float>() ==
          doctest::Approx(decays ? 1.0 - 1e-5 : 1.0).epsilon(1e-8));
  }
}

TEST_CASE("adamw: a part that no gradient reached does not move") {
  Fixture fixture(golden_spec());
  RoleOptimizer optimizer(fixture.role, 100);
  const auto before = fixture.role.master().clone();
  optimizer.update(1, 1.0);
  CHECK(at::equal(fixture.role.master(), before));
}

TEST_CASE("clip: the scale brings a larger norm down, and leaves a smaller one") {
  Fixture fixture(golden_spec());
  RoleOptimizer optimizer(fixture.role, 100);
  fixture.put_grad({3, 0, 4});
  CHECK(optimizer.grad_norm() == doctest::Approx(5.0).epsilon(1e-12));
  CHECK(RoleOptimizer::clip_scale(5.0, 10.0) == 1.0);
  CHECK(RoleOptimizer::clip_scale(5.0, 1.0) == doctest::Approx(1.0 / (5.0 + 1e-6)).epsilon(1e-12));
}

TEST_CASE("clip: an update of a scaled gradient is that of the gradient times the scale") {
  const auto after_update = [](double factor, double scale) {
    auto spec = golden_spec();
    spec.optimizer.eps = 1.0;  // else AdamW does not notice the size of a first gradient
    Fixture fixture(spec);
    RoleOptimizer optimizer(fixture.role, 100);
    fixture.put_grad({0.3 * factor, -0.2 * factor, 0.1 * factor});
    optimizer.update(1, scale);
    return fixture.role.master().clone();
  };
  CHECK(at::allclose(after_update(4, 0.25), after_update(1, 1), 1e-6, 1e-9));
  CHECK(!at::allclose(after_update(4, 1), after_update(1, 1), 1e-6, 1e-9));
}

TEST_CASE("ema: a thousand updates follow the closed form in every mode") {
  for (const auto warmup :
       {EmaWarmup::kConstant, EmaWarmup::kRatio, EmaWarmup::kPower, EmaWarmup::kRamp}) {
    EmaSpec spec;
    spec.flat_steps = 10;
    spec.decay = 0.99;
    spec.warmup = warmup;
    double average = 0;
    double weight = 1;  // what is left of the start
    for (int64_t n = 1; n <= 1000; ++n) {
      const double d = ema_decay(spec, n);
      average = d * average + (1 - d) * 2.0;
      weight *= d;
    }
    CHECK(average == doctest::Approx(2.0 * (1 - weight)).epsilon(1e-12));
  }
}

TEST_CASE("ema: decays") {
  EmaSpec spec;
  spec.decay = 0.99;
  CHECK(ema_decay(spec, 1) == 0.99);
  spec.warmup = EmaWarmup::kRatio;
  CHECK(ema_decay(spec, 1) == doctest::Approx(2.0 / 11.0));
  CHECK(ema_decay(spec, 100) == doctest::Approx(101.0 / 110.0));
  CHECK(ema_decay(spec, 1000) == 0.99);
  spec.warmup = EmaWarmup::kPower;
  CHECK(ema_decay(spec, 7) == doctest::Approx(1 - std::pow(8.0, -2.0 / 3.0)));
}

TEST_CASE("ema: the ramps of DiffusionNFT") {
  EmaSpec spec;
  spec.warmup = EmaWarmup::kRamp;
  spec.decay = 0.5;  // its default: the other values are too
  CHECK(ema_decay(spec, 1) == 0.001);
  CHECK(ema_decay(spec, 100) == doctest::Approx(0.1));
  CHECK(ema_decay(spec, 500) == 0.5);
  CHECK(ema_decay(spec, 1000) == 0.5);
  spec = EmaSpec{0.999, EmaWarmup::kRamp, 0, 0.0, 0.0075, 75};
  CHECK(ema_decay(spec, 74) == 0);
  CHECK(ema_decay(spec, 75) == 0);
  CHECK(ema_decay(spec, 76) == 0.0075);
  CHECK(ema_decay(spec, 100) == doctest::Approx(0.1875));
  CHECK(ema_decay(spec, 208) == doctest::Approx(0.9975));
  CHECK(ema_decay(spec, 209) == 0.999);
  // 4, then 8 from the first update on: 6 after one with 0.5, 7.8 after one with 0.1.
  spec = EmaSpec{0.9, EmaWarmup::kRamp, 0, 0.5, 0.1, 1};
  double average = 4;
  average += (1 - ema_decay(spec, 1)) * (8 - average);
  CHECK(average == 6);
  average += (1 - ema_decay(spec, 2)) * (8 - average);
  CHECK(average == doctest::Approx(7.8));
}

TEST_CASE("ema: the average of 16-bit weights moves by less than they can hold") {
  auto spec = golden_spec();
  spec.dtype = Precision::kBFloat16;
  spec.ema = EmaSpec{0.9999, EmaWarmup::kConstant, 0};
  Fixture fixture(spec);
  CHECK((fixture.role.average().scalar_type() == at::kFloat));
  RoleOptimizer optimizer(fixture.role, 200);
  auto expected = fixture.role.average().to(at::kDouble);
  for (int64_t step = 1; step <= 100; ++step) {
    fixture.put_grad({0.1, -0.2, 0.3});
    optimizer.update(step, 1.0);
    expected = expected * 0.9999 + fixture.role.master().to(at::kDouble) * 1e-4;
  }
  CHECK((fixture.role.average() - expected).abs().max().item<double>() < 1e-6);
}

TEST_CASE("ema: a decay of zero is a copy, bit by bit") {
  auto spec = golden_spec();
  spec.ema = EmaSpec{0.5, EmaWarmup::kRamp, 0, 0.0, 0.5, 100};
  Fixture fixture(spec);
  RoleOptimizer optimizer(fixture.role, 100);
  for (int64_t step = 1; step <= 3; ++step) {
    fixture.put_grad({0.1, -0.2, 0.3});
    optimizer.update(step, 1.0);
    CHECK(at::equal(fixture.role.average(), fixture.role.master()));
  }
}

TEST_CASE("ema: the average follows the role's own updates") {
  auto spec = golden_spec();
  spec.ema = EmaSpec{};
  spec.ema->decay = 0.5;
  spec.ema->start_step = 2;
  Fixture fixture(spec);
  RoleOptimizer optimizer(fixture.role, 100);

  fixture.put_grad({0.1, -0.2, 0.3});
  optimizer.update(1, 1.0);  // before the start: the average is the weights
  CHECK(at::equal(fixture.role.average(), fixture.role.master()));
  const auto first = fixture.role.master().clone();
  optimizer.update(2, 1.0);
  const auto expected = first * 0.5 + fixture.role.master() * 0.5;
  CHECK(at::allclose(fixture.role.average(), expected, 1e-6, 1e-7));
  CHECK(!at::allclose(fixture.role.average(), fixture.role.master(), 1e-6, 1e-7));
}
