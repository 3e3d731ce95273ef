// SPDX-License-Identifier: Apache-2.0
// The passes and losses of dmd2 with networks that are formulas: how often each role runs and with
// which history, and the student's gradient in closed form.
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "core/plugin/host_table.hpp"
#include "core/plugin/status.hpp"
#include "core/tensor/batch.hpp"
#include "core/tensor/guard.hpp"
#include "core/tensor/handle.hpp"
#include "core/tensor/random.hpp"
#include "core/tensor/tensor_api.hpp"
#include "dmd2/dmd2.hpp"

#include <doctest/doctest.h>

namespace {

using dmd2::Dmd2;

constexpr uint32_t kRoles = 4;

// A step of a method whose networks predict theta x + c, c the mean of the text: theta 0.3 of the
// student, 0.5 of the teacher, 0.2 of the critic.
struct FakeRun {
  struct Pass {
    uint32_t role;
    uint32_t flags;
    int64_t samples;
    at::Tensor noisy;
    double timestep;
  };
  dmd2::Options options;
  at::Tensor theta[3];
  lb_batch batch;
  lb_batch facts;
  lb_batch run_facts;
  lb_models models{};
  lb_metrics metrics{};
  lb_step table{};
  bool has_encoder = true;
  std::vector<Pass> passes;
  std::map<std::string, double> logged;

  FakeRun() {
    limbeck::provide("limbeck.tensor/1", &limbeck::tensor_api());
    limbeck::provide("limbeck.dispatch/1", &limbeck::dispatch_api());
    limbeck::provide("limbeck.batch/1", &limbeck::batch_api());
    limbeck::provide("limbeck.random/1", &limbeck::random_api());
    REQUIRE(lb::bind(&limbeck::host_table()) == nullptr);
    for (size_t i = 0; i < 3; ++i) {
      constexpr double kThetas[] = {0.3, 0.5, 0.2};
      theta[i] = at::full({}, kThetas[i], at::kDouble).requires_grad_(i != Dmd2::kTeacher);
    }
    options.dmd_denoising_steps = {1000, 750, 500, 250};
    options.latent_shape = {1, 2, 3, 2};
    options.fake_score_learning_rate = 1;
    batch.put("context", at::full({2, 3, 4}, 0.25, at::kDouble));
    models.struct_size = sizeof(models);
    models.n_roles = kRoles;
    models.ctx = this;
    models.run = run;
    models.has = [](const lb_models* of, uint32_t role, const char*) -> int32_t {
      return role < 3 || static_cast<FakeRun*>(of->ctx)->has_encoder ? 1 : 0;
    };
    models.facts = [](const lb_models* of, uint32_t) -> const lb_batch* {
      return &static_cast<FakeRun*>(of->ctx)->facts;
    };
    metrics.struct_size = sizeof(metrics);
    metrics.ctx = this;
    metrics.tensor = [](lb_metrics* of, const char* name, lb_tensor* scalar, lb_reduce) {
      static_cast<FakeRun*>(of->ctx)->logged[name] = limbeck::tensor_of(scalar).item<double>();
    };
    metrics.scalar = [](lb_metrics* of, const char* name, double value, lb_reduce) {
      static_cast<FakeRun*>(of->ctx)->logged[name] = value;
    };
    table.struct_size = sizeof(table);
    table.ctx = this;
    table.step = 1;
    table.roles = LB_BIT(Dmd2::kStudent) | LB_BIT(Dmd2::kCritic);
    table.models = &models;
    table.batch = &batch;
    table.facts = &run_facts;
    table.metrics = &metrics;
    table.backward = [](const lb_step*, uint32_t, lb_tensor* loss) noexcept -> lb_status* {
      return limbeck::guarded([&] { limbeck::tensor_of(loss).backward(); });
    };
  }

  static lb_status* run(const lb_models* of,
                        uint32_t role,
                        uint32_t flags,
                        const lb_batch* in,
                        lb_batch* out) noexcept {
    return limbeck::guarded([&] {
      auto& self = *static_cast<FakeRun*>(of->ctx);
      if (role == Dmd2::kTextEncoder) {
        out->put("context", at::full({1, 3, 4}, -1.0, at::kDouble));
        return;
      }
      const at::AutoGradMode mode(flags == 0);
      const auto& x = in->tensor("noisy");
      const auto& time = in->tensor("timestep");
      self.passes.push_back({role, flags, x.size(0), x.detach().clone(), time[0].item<double>()});
      const auto text = in->tensor("context").mean({1, 2}).view({-1, 1, 1, 1, 1});
      out->put("velocity", self.theta[role] * x + text);
    });
  }

  // One micro-step of step `step`.
  void micro_step(int64_t step) {
    passes.clear();
    logged.clear();
    table.step = step;
    Dmd2 method(options);
    method.start(lb::Step(&table));
    method.loss(lb::Step(&table));
  }
  // The first step whose draw is exit index `exit`.
  int64_t step_with_exit(int64_t exit) {
    const auto count = static_cast<int64_t>(options.dmd_denoising_steps.size());
    for (int64_t step = 1;; ++step) {
      if (lb::Draws(step, 0).choose("dmd2.student.exit", count) == exit) {
        return step;
      }
    }
  }
  int count(uint32_t role, bool with_history) const {
    int found = 0;
    for (const auto& pass : passes) {
      found += pass.role == role && (pass.flags == 0) == with_history ? 1 : 0;
    }
    return found;
  }
  at::Tensor gradient(uint32_t role) {
    auto grad = theta[role].mutable_grad().clone();
    theta[role].mutable_grad().reset();
    return grad;
  }
};

}  // namespace

TEST_CASE("dmd2: no forward is run that the iteration does not need") {
  FakeRun run;
  run.options.critic_reuse_rollout = true;
  for (int exit = 0; exit < 4; ++exit) {
    CAPTURE(exit);
    run.micro_step(run.step_with_exit(exit));
    CHECK(run.logged.at("dmd/exit_index") == exit);
    CHECK(run.count(Dmd2::kStudent, false) == exit);
    CHECK(run.count(Dmd2::kStudent, true) == 1);
    CHECK(run.count(Dmd2::kTeacher, false) == 1);  // no guidance, no second pass
    CHECK(run.count(Dmd2::kTeacher, true) == 0);
    CHECK(run.count(Dmd2::kCritic, false) == 1);
    CHECK(run.count(Dmd2::kCritic, true) == 1);
  }
  run.options.real_score_guidance_scale = 3;
  run.micro_step(1);
  CHECK(run.count(Dmd2::kTeacher, false) == 2);
  run.options.guidance_in_one_batch = true;
  run.micro_step(1);
  CHECK(run.count(Dmd2::kTeacher, false) == 1);

  // Parity with trainers that run every step: the same result from the same draws.
  const auto step = run.step_with_exit(1);
  run.micro_step(step);
  const auto loss = run.logged.at("generator_loss");
  run.options.rollout_forwards = "all";
  run.micro_step(step);
  CHECK(run.count(Dmd2::kStudent, false) == 3);
  CHECK(run.logged.at("generator_loss") == loss);
}

TEST_CASE("dmd2: a step without the student's update runs its sampler without history only") {
  FakeRun run;
  run.table.roles = LB_BIT(Dmd2::kCritic);
  run.micro_step(1);
  CHECK(run.count(Dmd2::kStudent, true) == 0);
  CHECK(run.count(Dmd2::kTeacher, false) == 0);
  CHECK(run.count(Dmd2::kCritic, true) == 1);
  CHECK(run.logged.count("generator_loss") == 0);
  CHECK_FALSE(run.theta[Dmd2::kStudent].grad().defined());
}

TEST_CASE("dmd2: exits are drawn evenly and visit the steps in order") {
  FakeRun run;
  std::vector<int> seen(4, 0);
  for (int64_t step = 1; step <= 4000; ++step) {
    ++seen[static_cast<size_t>(lb::Draws(step, 0).choose("dmd2.student.exit", 4))];
  }
  for (const int count : seen) {
    CHECK(std::abs(count - 1000) < 120);  // more than four deviations
  }
  run.options.critic_reuse_rollout = true;
  run.micro_step(run.step_with_exit(3));
  std::vector<double> times;
  for (const auto& pass : run.passes) {
    if (pass.role == Dmd2::kStudent) {
      times.push_back(pass.timestep);
    }
  }
  CHECK(times == std::vector<double>{1000, 750, 500, 250});
  run.options.warp_denoising_step = true;
  run.options.flow_shift = 3;
  run.micro_step(run.step_with_exit(3));
  CHECK(run.passes[1].timestep == doctest::Approx(900));
  CHECK(run.passes[3].timestep == doctest::Approx(500));
}

TEST_CASE("dmd2: only the exit step moves the student, along the score difference") {
  // x = s_e - sigma (theta s_e + c); F and R are linear in y, so the direction is known.
  for (const double wrong : {0.0, 0.1}) {
    FakeRun run;
    run.options.critic_reuse_rollout = true;
    run.options.real_score_guidance_scale = 3;
    const auto step = run.step_with_exit(1);
    run.micro_step(step);
    const auto gradient = run.gradient(Dmd2::kStudent);

    const double c = 0.25;
    const double sigma = 0.75;
    const auto s1 = run.passes[1].noisy;  // what the step at 750 read, taken as a constant
    const auto x = s1 - sigma * (0.3 * s1 + c);
    const auto noisy = run.passes[2].noisy;
    const auto level = at::empty({2, 1, 1, 1, 1}, at::kDouble);
    const auto levels = lb::Draws(step, 0).uniform("dmd2.student.level", {2});
    for (int64_t i = 0; i < 2; ++i) {
      const auto u = limbeck::tensor_of(levels.raw())[i].item<double>();
      level[i].fill_(std::floor(u * 1000) / 1000);
    }
    const auto fake = noisy - level * (0.2 * noisy + c);
    const double guided = -1 + (3 + wrong) * (c + 1);
    const auto real = noisy - level * (0.5 * noisy + guided);
    const auto norm = (x - real).abs().mean({1, 2, 3, 4}, true);
    const auto direction = (fake - real) / norm;
    const auto expected = (direction / x.numel() * (-sigma * s1)).sum();
    const auto error = (gradient - expected).abs().item<double>() / expected.abs().item<double>();
    CHECK((error < 1e-5) == (wrong == 0.0));
    CHECK(run.logged.at("generator_loss") ==
          doctest::Approx(0.5 * direction.square().mean().item<double>())
              .epsilon(wrong == 0.0 ? 1e-5 : 10.0));
  }
}

TEST_CASE("dmd2: guidance in one batch, by zeros and away from the same text") {
  FakeRun run;
  run.options.real_score_guidance_scale = 4;
  run.micro_step(3);
  const auto separate = run.logged;
  run.options.guidance_in_one_batch = true;
  run.micro_step(3);
  CHECK(run.logged.at("dmd/real_mean") == doctest::Approx(separate.at("dmd/real_mean")));
  CHECK(run.logged.at("generator_loss") == doctest::Approx(separate.at("generator_loss")));
  run.options.cfg_uncond_text = "zero";
  run.micro_step(3);
  CHECK(run.logged.at("dmd/real_mean") != doctest::Approx(separate.at("dmd/real_mean")));

  run.options.guidance_in_one_batch = false;
  run.options.cfg_uncond_text = "keep";
  run.micro_step(3);
  const auto kept = run.logged.at("generator_loss");
  run.options.real_score_guidance_scale = 1;
  run.micro_step(3);
  CHECK(run.logged.at("generator_loss") == kept);

  run.options.cfg_uncond_text = "negative_prompt";
  run.options.real_score_guidance_scale = 4;
  run.has_encoder = false;
  CHECK_THROWS_WITH(run.micro_step(3), doctest::Contains("models.text_encoder"));
}

TEST_CASE("dmd2: samples of the data are noised to the level that was drawn") {
  FakeRun run;
  const auto latents = at::sin(at::arange(24, at::kDouble)).view({2, 1, 2, 3, 2});
  run.batch.put("latents", latents);
  run.options.rollout_mode = "data_latent";
  run.options.latent_shape = {};
  run.options.critic_reuse_rollout = true;
  run.options.regression_weight = 2;
  const auto step = run.step_with_exit(2);
  run.micro_step(step);
  CHECK(run.count(Dmd2::kStudent, false) == 0);
  const auto noise =
      limbeck::tensor_of(lb::Draws(step, 0).normal("dmd2.student.rollout", {2, 1, 2, 3, 2}).raw());
  const auto expected = 0.5 * latents + 0.5 * noise;
  CHECK((run.passes[0].noisy - expected).abs().max().item<double>() < 1e-6);
  const auto x = expected - 0.5 * (0.3 * expected + 0.25);
  CHECK(run.logged.at("dmd/regression_loss") ==
        doctest::Approx((x - latents).square().mean().item<double>()).epsilon(1e-5));
}

TEST_CASE("dmd2: one level for the batch, levels of the grid, and the critic's two losses") {
  FakeRun run;
  run.options.critic_reuse_rollout = true;
  run.micro_step(5);
  const auto flow = run.logged.at("fake_score_loss");
  run.options.critic_loss_type = "x0";
  run.options.score_timesteps = "batch";
  run.micro_step(5);
  const auto x0 = run.logged.at("fake_score_loss");
  CHECK(x0 < flow);  // sigma^2 times the same errors, at levels below 1
  run.options.critic_loss_type = "flow";
  run.micro_step(5);
  const double sigma = run.passes.back().timestep / 1000;
  CHECK(x0 == doctest::Approx(sigma * sigma * run.logged.at("fake_score_loss")).epsilon(1e-5));
  run.options.sigma_lookup = "grid";
  run.options.flow_shift = 5;
  run.micro_step(run.step_with_exit(2));
  const auto shifted = run.logged.at("dmd/real_mean");
  run.options.sigma_lookup = "exact";
  run.micro_step(run.step_with_exit(2));
  // 500 lies between two levels of the grid.
  CHECK(std::abs(run.logged.at("dmd/real_mean") - shifted) > 1e-6);
  CHECK(std::abs(run.logged.at("dmd/real_mean") - shifted) < 1e-2);
}
