// SPDX-License-Identifier: Apache-2.0
// The loss of supervised fine-tuning in closed form, with a network that returns a given velocity.
#include <cmath>
#include <map>
#include <string>

#include <ATen/ATen.h>

#include "core/plugin/host_table.hpp"
#include "core/plugin/status.hpp"
#include "core/tensor/batch.hpp"
#include "core/tensor/handle.hpp"
#include "core/tensor/tensor_api.hpp"
#include "sft/fine_tuning.hpp"

#include <doctest/doctest.h>

namespace {

constexpr double kTimestep = 250.0;

at::Tensor video(double phase) {
  return at::sin(at::arange(24, at::kDouble) + phase).view({2, 3, 1, 2, 2});
}

// A step whose network predicts `velocity` and whose terms, if any, are the mean error.
struct FakeStep {
  at::Tensor latents = video(0.3);
  at::Tensor noise = video(1.1);
  at::Tensor velocity = video(2.5);
  bool has_terms = false;
  at::Tensor terms_saw;  // the entry "velocity" of the values
  lb_batch facts;        // of the network
  at::Tensor seen;       // the timesteps that it was given
  std::map<std::string, double> logged;
  lb_batch batch;
  lb_models models{};
  lb_metrics metrics{};
  lb_step table{};

  FakeStep() {
    limbeck::provide("limbeck.tensor/1", &limbeck::tensor_api());
    limbeck::provide("limbeck.dispatch/1", &limbeck::dispatch_api());
    limbeck::provide("limbeck.batch/1", &limbeck::batch_api());
    REQUIRE(lb::bind(&limbeck::host_table()) == nullptr);
    const double sigma = kTimestep / 1000.0;
    batch.put("latents", latents);
    batch.put("noise", noise);
    batch.put("noisy", (1.0 - sigma) * latents + sigma * noise);
    batch.put("timestep", at::full({2}, kTimestep, at::kDouble));
    models.struct_size = sizeof(models);
    models.ctx = this;
    models.run = [](const lb_models* of, uint32_t role, uint32_t, const lb_batch* in,
                    lb_batch* out) -> lb_status* {
      REQUIRE(role == sft::FineTuning::kStudent);
      REQUIRE(in->find<at::Tensor>("noisy") != nullptr);
      auto* const step = static_cast<FakeStep*>(of->ctx);
      step->seen = in->tensor("timestep");
      out->put("velocity", step->velocity);
      return nullptr;
    };
    models.facts = [](const lb_models* of, uint32_t) -> const lb_batch* {
      return &static_cast<const FakeStep*>(of->ctx)->facts;
    };
    metrics.struct_size = sizeof(metrics);
    metrics.ctx = this;
    metrics.tensor = [](lb_metrics* of, const char* name, lb_tensor* scalar, lb_reduce) {
      static_cast<FakeStep*>(of->ctx)->logged[name] = limbeck::tensor_of(scalar).item<double>();
    };
    table.struct_size = sizeof(table);
    table.ctx = this;
    table.models = &models;
    table.batch = &batch;
    table.metrics = &metrics;
    table.terms = [](const lb_step* of, uint32_t, const lb_batch* values,
                     lb_tensor** out) -> lb_status* {
      if (static_cast<const FakeStep*>(of->ctx)->has_terms) {
        *out = limbeck::give((values->tensor("prediction") - values->tensor("target")).mean());
        static_cast<FakeStep*>(of->ctx)->terms_saw = values->tensor("velocity");
      }
      return nullptr;
    };
  }

  double loss(bool precondition_outputs) {
    sft::Options options;
    options.precondition_outputs = precondition_outputs;
    sft::FineTuning method(options);
    return method.loss(lb::Step(&table)).item();
  }
};

double mean_square(const at::Tensor& error) { return error.square().mean().item<double>(); }

bool near(double got, double expected) { return std::abs(got - expected) < 1e-14; }

}  // namespace

TEST_CASE("the loss is the mean squared error of the velocity") {
  FakeStep step;
  const double expected = mean_square(step.velocity - (step.noise - step.latents));
  CHECK(near(step.loss(false), expected));
  CHECK(near(step.logged.at("loss"), expected));
  step.batch.put("noise", step.noise * 1.001);
  CHECK_FALSE(near(step.loss(false), expected));
}

TEST_CASE("with preconditioned outputs it is that of the clean sample") {
  FakeStep step;
  // x - sigma v - x0 = sigma (noise - x0 - v)
  const double sigma = kTimestep / 1000.0;
  const double expected = sigma * sigma * mean_square(step.velocity - (step.noise - step.latents));
  CHECK(near(step.loss(true), expected));
  step.batch.put("timestep", at::full({2}, kTimestep + 1, at::kDouble));
  CHECK_FALSE(near(step.loss(true), expected));
}

TEST_CASE("a network is told the time on its own scale") {
  FakeStep step;
  step.loss(false);
  CHECK(step.seen.equal(at::full({2}, kTimestep, at::kDouble)));
  const double before = step.loss(true);
  step.facts.put("time_scale", 1.0);
  // Only what the network sees changes, not the level that the loss reads.
  CHECK(near(step.loss(true), before));
  CHECK(step.seen.equal(at::full({2}, kTimestep / 1000.0, at::kDouble)));
}

TEST_CASE("terms of the manifest replace the mean squared error") {
  FakeStep step;
  step.has_terms = true;
  const double expected = (step.velocity - (step.noise - step.latents)).mean().item<double>();
  CHECK(near(step.loss(false), expected));
  CHECK(near(step.logged.at("loss"), expected));
  // Terms that compare networks need what the network said, whatever is compared with the data.
  CHECK(step.terms_saw.equal(step.velocity));
  CHECK_FALSE(near(step.loss(true), expected));
  CHECK(step.terms_saw.equal(step.velocity));
}

TEST_CASE("a prediction of 16 bits is compared in 32") {
  FakeStep step;
  step.velocity = step.velocity.to(at::kBFloat16);
  const auto target = (step.noise - step.latents).to(at::kFloat);
  const double expected = mean_square(step.velocity.to(at::kFloat) - target);
  CHECK(std::abs(step.loss(false) - expected) < 1e-6);
}
