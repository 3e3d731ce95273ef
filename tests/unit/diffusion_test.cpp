// SPDX-License-Identifier: Apache-2.0
// The scalar side of the diffusion library: formulas that need no host.
#include <cmath>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <limbeck/diffusion/convert.hpp>
#include <limbeck/diffusion/density.hpp>
#include <limbeck/diffusion/guidance.hpp>
#include <limbeck/diffusion/loss_weight.hpp>
#include <limbeck/diffusion/sampler.hpp>
#include <limbeck/diffusion/schedule.hpp>

namespace {

using namespace lb::diffusion;

bool near(double got, double expected, double tolerance) {
  return std::abs(got - expected) <= tolerance;
}
bool near(const std::vector<double>& got, const std::vector<double>& expected, double tolerance) {
  if (got.size() != expected.size()) {
    return false;
  }
  for (size_t i = 0; i < got.size(); ++i) {
    if (!near(got[i], expected[i], tolerance)) {
      return false;
    }
  }
  return true;
}

}  // namespace

TEST_CASE("shift keeps both ends and moves the rest towards noise") {
  for (const double s : {1.0, 3.0, 5.0, 8.0, 12.0}) {
    CHECK(near(shift(0.0, s), 0.0, 0.0));
    CHECK(near(shift(1.0, s), 1.0, 1e-15));
    for (const double sigma : {0.001, 0.25, 0.5, 0.999}) {
      CHECK(near(unshift(shift(sigma, s), s), sigma, 1e-14));
    }
  }
  CHECK(near(shift(0.75, 3), 0.9, 1e-15));
  CHECK(near(shift(0.5, 12), 0.923076923076923, 1e-14));
  CHECK(near(shift(0.001, 8), 0.00794439, 5e-9));
  CHECK_FALSE(near(shift(0.75, 3.01), 0.9, 1e-4));
}

TEST_CASE("the training grid has the published levels") {
  // The published ones were computed in single precision.
  const Grid three(3);
  CHECK(three.size() == 1000);
  CHECK(near(three.sigma(0), 1.0, 0.0));
  CHECK(near(three.sigma(1), 0.999666393, 2e-7));
  CHECK(near(three.sigma(499), 0.75074929, 2e-7));
  CHECK(near(three.sigma(998), 0.0059760958, 5e-10));
  CHECK(near(three.sigma(999), 0.00299401209, 5e-10));
  const Grid five(5);
  CHECK(near(five.sigma(1), 0.999799788, 2e-7));
  CHECK(near(five.sigma(499), 0.833888113, 2e-7));
  CHECK(near(five.sigma(999), 0.0049800803, 2e-9));
  CHECK_FALSE(near(five.sigma(998), 0.0049800803, 1e-4));
}

TEST_CASE("a timestep finds the nearest level of the grid") {
  const Grid grid(5);
  CHECK(grid.nearest(937) == 252);
  CHECK(grid.nearest(625) == 750);
  CHECK(grid.nearest(500) == 833);
  CHECK(grid.nearest(20) == 996);
  CHECK(grid.nearest(0) == 999);
  CHECK(near(grid.sigma_of(937), 0.93687375, 5e-9));
  CHECK(near(grid.sigma_of(625), 0.625, 1e-12));
  CHECK(near(grid.sigma_of(500), 0.50059952, 5e-9));
  CHECK(near(grid.sigma_of(20), 0.01968504, 5e-9));
  CHECK(near(grid.sigma_of(0), 0.00498008, 5e-9));
  CHECK(near(sigma_of(937.0), 0.937, 1e-15));
  CHECK(near(sigma_of(1200.0), 1.0, 0.0));
  CHECK_FALSE(near(grid.sigma_of(500), sigma_of(500.0), 1e-4));
}

TEST_CASE("a list of denoising steps is warped by the shift") {
  const std::vector<double> steps = {1000, 750, 500, 250, 0};
  CHECK(near(warp(steps, 3), {1000, 900, 750, 500, 0}, 1e-12));
  CHECK(near(warp(steps, 5), {1000, 937.5, 833.3333333, 625, 0}, 1e-6));
  CHECK(near(warp(steps, 8), {1000, 960, 888.8888889, 727.2727273, 0}, 1e-6));
  CHECK_FALSE(near(warp(steps, 5), warp(steps, 5.001), 1e-3));
}

TEST_CASE("noise, x0 and velocity are forms of one prediction") {
  const double x0 = 0.7;
  const double noise = -1.3;
  for (const double sigma : {0.1, 0.5, 0.999}) {
    const double x = add_noise(x0, noise, sigma);
    const double v = velocity(x0, noise);
    CHECK(near(x0_from_velocity(x, v, sigma), x0, 1e-15));
    CHECK(near(noise_from_velocity(x, v, sigma), noise, 1e-15));
    CHECK(near(velocity_from_x0(x, x0, sigma), v, 1e-13));
    CHECK(near(noise_from_x0(x, x0, sigma), noise, 1e-14));
    CHECK_FALSE(near(x0_from_velocity(x, v, sigma * 0.99), x0, 1e-4));
  }
  CHECK(near(add_noise(x0, noise, 0.0), x0, 0.0));
  CHECK(near(add_noise(x0, noise, 1.0), noise, 0.0));
  CHECK(std::isfinite(velocity_from_x0(x0, x0, 0.0)));
}

TEST_CASE("densities map given draws to places on the grid") {
  const std::vector<double> r = {.5349225, .1988032, .6592117, .6568903};
  const std::vector<double> one = {.4849011, .6967831, .4213676, .4228043};
  const std::vector<double> wide = {.4906500, .6665031, .4447356, .4459157};
  for (size_t i = 0; i < r.size(); ++i) {
    CHECK(near(mode(r[i], 1.0), one[i], 2e-7));
    CHECK(near(mode(r[i], 1.29), wide[i], 2e-7));
    CHECK(near(mode(r[i], 0.0), 1 - r[i], 1e-15));
    CHECK_FALSE(near(mode(r[i], 1.2), wide[i], 1e-5));
  }
  CHECK(near(mode(0.25, 1.0), 0.646447, 5e-7));
  CHECK(near(mode(0.75, 1.0), 0.353553, 5e-7));
  CHECK(near(logit_normal(0.0, 0.0, 1.0), 0.5, 0.0));
  CHECK(near(logit_normal(2.0, 0.5, 0.25), 1 / (1 + std::exp(-1.0)), 1e-15));
}

TEST_CASE("an index stays on the grid where a density reaches its ends") {
  CHECK(near(index_of(mode(0.0, 1.0)), 999.0, 0.0));
  CHECK(near(index_of(1.0), 999.0, 0.0));
  CHECK(near(index_of(0.0), 0.0, 0.0));
  CHECK(near(index_of(0.4849011), 484.0, 0.0));
  CHECK(near(index_of(0.5, 10), 5.0, 0.0));
}

TEST_CASE("places on the grid become the published timesteps") {
  const std::vector<double> places = {0, 0.25, 0.5, 0.999};
  const auto timesteps = [&](double s) {
    std::vector<double> result;
    for (const double u : places) {
      result.push_back(kTimeScale * discrete_level(u, s));
    }
    return result;
  };
  CHECK(near(timesteps(3), {1000, 900, 750, 2.994012}, 1e-6));
  CHECK(near(timesteps(5), {1000, 937.5, 833.333333, 4.980080}, 1e-6));
  CHECK_FALSE(near(timesteps(3.01), {1000, 900, 750, 2.994012}, 1e-6));
  CHECK(near(discrete_level(0.9999, 1), 0.001, 1e-15));
  CHECK(near(discrete_level(0.0005, 1), 1, 0));
}

TEST_CASE("a level never exceeds 1 and on the grid never is 0") {
  std::mt19937_64 engine(3);
  std::uniform_real_distribution<double> uniform;
  std::normal_distribution<double> normal;
  for (int k = 0; k < 200'000; ++k) {
    const double r = k == 0 ? 0.0 : uniform(engine);
    for (const double u :
         {r, mode(r, 1.7519), mode(r, -1.0), logit_normal(40.0 * normal(engine), 0.0, 1.0)}) {
      const double level = discrete_level(u, 5.0);
      const double free = continuous_level(u, 5.0);
      if (!(level > 0.0 && level <= 1.0 && free >= 0.0 && free <= 1.0)) {
        FAIL("u = " << u << " gives " << level << " and " << free);
      }
    }
  }
}

TEST_CASE("training and sampling share levels, shifted exactly once") {
  for (const double s : {1.0, 3.0, 5.0, 8.0}) {
    const auto sampler = euler_sigmas(1000, s);
    const Grid grid(s);
    bool is_same = sampler.size() == 1001 && sampler.back() == 0;
    for (int64_t i = 0; i < grid.size(); ++i) {
      const double u = (static_cast<double>(i) + 0.5) / 1000.0;
      is_same = is_same && sampler[static_cast<size_t>(i)] == grid.sigma(i) &&
                discrete_level(u, s) == grid.sigma(i);
    }
    CHECK(is_same);
    // A sampler of four steps visits levels of training, and the timestep it tells is one too.
    const auto four = euler_sigmas(4, s);
    for (size_t j = 0; j < 4; ++j) {
      CHECK(grid.sigma_of(kTimeScale * four[j]) == four[j]);
      CHECK(near(four[j], shift(1.0 - 0.25 * static_cast<double>(j), s), 0));
    }
    CHECK(near(four[1], shift(shift(0.75, s), s), 0) == (s == 1.0));
  }
}

TEST_CASE("a warped step and its level agree, one that was not warped is another level") {
  const std::vector<double> steps = {1000, 750, 500, 250};
  for (const double s : {3.0, 5.0, 8.0}) {
    const auto warped = warp(steps, s);
    for (size_t i = 0; i < steps.size(); ++i) {
      CHECK(near(sigma_of(warped[i]), shift(steps[i] / 1000, s), 1e-15));
    }
    CHECK_FALSE(near(sigma_of(steps[1]), shift(steps[1] / 1000, s), 1e-2));
  }
}

TEST_CASE("a shift above 1 means more noise in the mean") {
  // The mean of shift(sigma, s) over sigma in [0, 1].
  const auto expected = [](double s) {
    return s / (s - 1) - s * std::log(s) / ((s - 1) * (s - 1));
  };
  const auto mean = [](double s) {
    double sum = 0;
    for (const double sigma : Grid(s).sigmas()) {
      sum += sigma;
    }
    return sum / 1000;
  };
  CHECK(near(mean(1), 0.5, 1e-3));
  CHECK(near(mean(3), expected(3), 1e-3));
  CHECK(near(mean(8), expected(8), 1e-3));
  CHECK(near(mean(0.5), expected(0.5), 1e-3));
  CHECK_FALSE(near(mean(3), expected(3.1), 1e-3));
  CHECK(mean(0.5) < mean(1));
  CHECK(mean(1) < mean(3));
  CHECK(mean(3) < mean(8));
}

TEST_CASE("a positive mean of logit_normal gives less noise") {
  for (const double z : {-2.0, 0.0, 1.0}) {
    CHECK(continuous_level(logit_normal(z, 1.0, 1.0), 1.0) <
          continuous_level(logit_normal(z, 0.0, 1.0), 1.0));
  }
}

TEST_CASE("without a grid logit_normal(0, 1) is symmetric around one half") {
  for (const double z : {0.0, 0.3, 1.0, 2.5}) {
    const double level = continuous_level(logit_normal(z, 0.0, 1.0), 1.0);
    const double mirrored = continuous_level(logit_normal(-z, 0.0, 1.0), 1.0);
    CHECK(near(level + mirrored, 1.0, 1e-15));
    CHECK(near(level, 1.0 / (1.0 + std::exp(z)), 1e-15));
  }
}

TEST_CASE("loss weights follow their closed forms") {
  CHECK(near(sigma_sqrt_weight(0.5), 4.0, 1e-15));
  CHECK(near(sigma_sqrt_weight(0.0), 1e6, 1e-6));
  CHECK(near(cosmap_weight(0.5), 4.0 / std::numbers::pi, 1e-15));
  CHECK(near(cosmap_weight(0.0), 2.0 / std::numbers::pi, 1e-15));
  CHECK(near(cosmap_weight(0.25), cosmap_weight(0.75), 1e-15));
  CHECK_FALSE(near(cosmap_weight(0.25), cosmap_weight(0.5), 1e-2));
}

TEST_CASE("guidance is standard: scale one is the conditional prediction") {
  CHECK(near(guide(0.2, 0.7, 1.0), 0.7, 1e-15));
  CHECK(near(guide(0.2, 0.7, 0.0), 0.2, 1e-15));
  CHECK(near(guide(0.2, 0.7, 3.0), 1.7, 1e-15));
  CHECK(near(guide(0.2, 0.7, 4.0), 0.7 + 3.0 * (0.7 - 0.2), 1e-15));
  CHECK(near(guide(1.0, 2.0, 3.5), 4.5, 0.0));
  // The convention that counts from the conditional prediction is one off.
  CHECK_FALSE(near(guide(1.0, 2.0, 3.5), 2.0 + 3.5 * (2.0 - 1.0), 0.5));
}

TEST_CASE("Euler grids have the published levels") {
  CHECK(near(diffusers_euler_sigmas(4, 3), {1, 0.857692301, 0.602150559, 0.00892857183, 0}, 1e-7));
  CHECK(near(diffusers_euler_sigmas(6, 5),
             {1, 0.952663004, 0.883212507, 0.771430731, 0.561649859, 0.0244140662, 0}, 1e-7));
  CHECK(near(diffusers_euler_sigmas(4, 5), {1, 0.909707, 0.717317, 0.024414, 0}, 1e-6));
  const auto long_grid = diffusers_euler_sigmas(25, 8);
  CHECK(near({long_grid.end() - 5, long_grid.end()}, {0.548751, 0.443567, 0.293124, 0.060207, 0},
             1e-6));
  CHECK(near(diffusers_euler_sigmas(1, 5), {1, 0}, 0.0));
  CHECK(near(euler_sigmas(4, 1), {1, 0.75, 0.5, 0.25, 0}, 0.0));
  CHECK(near(euler_sigmas(4, 3), {1, 0.9, 0.75, 0.5, 0}, 1e-15));
  CHECK_FALSE(near(diffusers_euler_sigmas(4, 3), euler_sigmas(4, 3), 1e-2));
}

TEST_CASE("Euler follows the probability flow of a Gaussian") {
  // Data N(m, s^2): the optimal velocity is known, and so is where n uniform steps from z end.
  constexpr double m = 2.0;
  constexpr double s = 0.5;
  const auto sample = [](int64_t steps, double grid_shift) {
    const auto sigmas = euler_sigmas(steps, grid_shift);
    double x = 1.3;
    for (size_t i = 0; i + 1 < sigmas.size(); ++i) {
      const double a = 1 - sigmas[i];
      const double variance = a * a * s * s + sigmas[i] * sigmas[i];
      const double v = (sigmas[i] - a * s * s) / variance * (x - a * m) - m;
      x = euler_step(x, v, sigmas[i], sigmas[i + 1]);
    }
    return x;
  };
  CHECK(near(sample(1, 1), 2.0, 1e-12));
  CHECK(near(sample(2, 1), 2.26, 1e-9));
  CHECK(near(sample(4, 1), 2.442703, 5e-7));
  CHECK(near(sample(16, 1), 2.592388, 5e-7));
  CHECK(near(sample(256, 1), 2.646249, 5e-7));
  CHECK_FALSE(near(sample(4, 1.1), 2.442703, 1e-4));
}

TEST_CASE("a few-step sampler ends at the prediction of x0") {
  CHECK(near(renoise_step(1.5, 0.5, 0.8, 0.0, 9.0), 1.1, 1e-15));
  CHECK(near(renoise_step(1.5, 0.5, 0.8, 0.25, -2.0), 0.75 * 1.1 - 0.25 * 2.0, 1e-15));
}
