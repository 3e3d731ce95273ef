// SPDX-License-Identifier: Apache-2.0
// The loop with a toy network and components that write down what they are told.
#include <filesystem>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "core/base/error.hpp"
#include "core/plugin/host_table.hpp"
#include "toy_run.hpp"

#include <doctest/doctest.h>

using namespace limbeck;
using namespace limbeck::testing;

TEST_CASE("train loop: events come in their order") {
  Training training(3);
  training.manifest.callbacks[0].every_steps = 2;
  training.run();
  CHECK(
      joined(training.book.events) ==
      "start 0, begin 1, round 1, step 1, begin 2, round 2, step 2, validate 2, begin 3, round 3, "
      "step 3, end 3");
  CHECK(training.book.tracked == std::vector<int64_t>{1, 2, 3});
  CHECK(training.book.closed_with == 1);
}

TEST_CASE("train loop: validation on request comes after the step, and once") {
  Training training(2);
  training.book.on_event = [](const lb_event* event) {
    if (event->kind == LB_ON_ROUND && event->step == 1) {
      event->request(event, LB_WANT_VALIDATION);
    }
  };
  training.run();
  CHECK(joined(training.book.events) ==
        "start 0, begin 1, round 1, step 1, validate 1, begin 2, round 2, step 2, end 2");
}

TEST_CASE("train loop: a callback that ends the run is told the step it ended at") {
  Training training(5);
  training.book.on_event = [](const lb_event* event) {
    if (event->kind == LB_ON_STEP && event->step == 2) {
      event->request(event, LB_WANT_STOP);
    }
  };
  training.run();
  CHECK(training.book.events.back() == "end 2");
  CHECK(training.book.tracked == std::vector<int64_t>{1, 2});
}

TEST_CASE("train loop: what is reported between steps is tracked with the step before") {
  Training training(2);
  training.manifest.callbacks[0].every_steps = 1;
  training.book.on_event = [](const lb_event* event) {
    if (event->kind == LB_ON_VALIDATE) {
      event->metrics->scalar(event->metrics, "seen", 1, LB_LAST);
    }
  };
  training.run();
  CHECK(training.book.tracked == std::vector<int64_t>{1, 1, 2, 2});
  CHECK(std::count(training.book.names.begin(), training.book.names.end(), "seen") == 2);
  CHECK(training.book.values.at(1).count("seen") == 0);
}

TEST_CASE("train loop: an error is told with its step, and trackers keep what came before") {
  Training training(5);
  std::string told;
  training.book.on_event = [&](const lb_event* event) {
    if (event->kind == LB_ON_STEP && event->step == 3) {
      throw Error(Fault::kData, "the disk burns");
    }
    if (event->kind == LB_ON_ERROR) {
      told = event->text;
      CHECK(event->models == nullptr);
    }
  };
  CHECK_THROWS_WITH(training.run(), doctest::Contains("the disk burns"));
  CHECK(training.book.events.back() == "error 3");
  CHECK(told.find("the disk burns") != std::string::npos);
  CHECK(training.book.tracked == std::vector<int64_t>{1, 2, 3});
  CHECK(training.book.closed_with == 0);
}

TEST_CASE("train loop: a loss or a gradient that is not finite stops before weights move") {
  const auto weights_after = [](Training& training) {
    Run run(training.manifest);
    std::string said;
    try {
      train(run, {}, std::nullopt);
    } catch (const Error& error) {
      said = error.message();
      CHECK((error.fault() == Fault::kNumeric));
    }
    return std::pair(run.optimizers.at(kNet)->role().master().clone(), said);
  };
  Training two(2);
  const auto [expected, nothing] = weights_after(two);
  CHECK(nothing.empty());

  Training with_loss(5);
  with_loss.book.bend = [](int64_t step, const at::Tensor& loss, const at::Tensor&) {
    return step == 3 ? loss / 0.0 : loss;
  };
  const auto [after_loss, of_loss] = weights_after(with_loss);
  CHECK(after_loss.equal(expected));
  CHECK(of_loss.find("of step 3 is not finite: losses inf") != std::string::npos);

  // The loss stays a number; the slope of the root of 0 is not one.
  Training with_gradient(5);
  with_gradient.book.bend = [](int64_t step, const at::Tensor& loss, const at::Tensor& y) {
    return step == 3 ? loss + (0.0 * y.sum()).sqrt() : loss;
  };
  const auto [after_gradient, of_gradient] = weights_after(with_gradient);
  CHECK(after_gradient.equal(expected));
  CHECK(of_gradient.find("of step 3 is not finite: losses 0.") != std::string::npos);
  const auto norms = of_gradient.find("gradient norms ");
  CHECK(of_gradient.substr(norms, of_gradient.find(';') - norms).find("nan") != std::string::npos);

  Training three(3);
  CHECK_FALSE(weights_after(three).first.equal(expected));
}

TEST_CASE("train loop: a trained role that no loss reaches is an error, and no weight moves") {
  const auto fault_of = [](auto bend) {
    Training training(2);
    training.book.bend = bend;
    const auto before = [&] {
      Run fresh(training.manifest);
      fresh.load();
      return fresh.optimizers.at(kNet)->role().master().clone();
    }();
    Run run(training.manifest);
    std::string said;
    try {
      train(run, {}, std::nullopt);
    } catch (const Error& error) {
      said = error.message();
      CHECK((error.fault() == Fault::kPlugin));
    }
    CHECK(run.optimizers.at(kNet)->role().master().equal(before));
    return said;
  };
  const auto detached =
      fault_of([](int64_t, const at::Tensor& loss, const at::Tensor&) { return loss.detach(); });
  CHECK(detached.find("takes a scalar loss with history") != std::string::npos);
  const auto of_another = fault_of([](int64_t, const at::Tensor&, const at::Tensor&) {
    return at::ones({}, at::kFloat).requires_grad_(true).square();
  });
  CHECK(of_another.find("updates role 'net', but no loss gave it a gradient") != std::string::npos);
}

TEST_CASE("train loop: a stop by signal writes what trackers have, and exports") {
  Training training(5);
  training.book.on_event = [](const lb_event* event) {
    if (event->kind == LB_ON_STEP && event->step == 2) {
      request_stop(LB_STOP_SOON);
    }
  };
  CHECK_THROWS_WITH(training.run(), doctest::Contains("stopped after step 2 of 5"));
  forget_stop();
  CHECK(training.book.tracked == std::vector<int64_t>{1, 2});
  CHECK(training.book.closed_with == 0);
  CHECK(std::filesystem::exists(training.manifest.run.output_dir / "export/net/config.json"));
}

TEST_CASE("train loop: callbacks see the averaged weights of a role") {
  const auto outputs = [](double decay) {
    Training training(3);
    training.manifest.callbacks[0].every_steps = 3;
    training.manifest.roles[0].ema = EmaSpec{decay, EmaWarmup::kConstant, 0};
    std::vector<at::Tensor> seen;  // before training, after it, with averaged weights
    training.book.on_event = [&](const lb_event* event) {
      if (event->kind == LB_ON_START || event->kind == LB_ON_VALIDATE) {
        seen.push_back(run_toy(event->models, kNet, LB_RUN_NO_GRAD));
      }
      if (event->kind == LB_ON_VALIDATE) {
        seen.push_back(run_toy(event->models, kNet, LB_RUN_AVERAGED));
        // Looking does not change anything.
        CHECK(at::equal(run_toy(event->models, kNet, LB_RUN_NO_GRAD), seen[1]));
      }
    };
    training.run();
    REQUIRE(seen.size() == 3);
    CHECK_FALSE(at::allclose(seen[0], seen[1], 1e-3, 1e-3));
    return seen;
  };
  const auto none = outputs(0.0);  // the average is the live weights
  CHECK(at::equal(none[2], none[1]));
  const auto slow = outputs(1 - 1e-9);  // the average stays where the role began
  CHECK(at::allclose(slow[2], slow[0], 1e-5, 1e-6));
  CHECK_FALSE(at::allclose(slow[2], slow[1], 1e-3, 1e-3));
}

TEST_CASE("train loop: callbacks see shadow roles after they have moved") {
  Training training(1);
  training.manifest.callbacks[0].every_steps = 1;
  std::vector<at::Tensor> slow;
  at::Tensor net;
  training.book.on_event = [&](const lb_event* event) {
    if (event->kind == LB_ON_START || event->kind == LB_ON_ROUND) {
      slow.push_back(run_toy(event->models, kSlow, LB_RUN_NO_GRAD));
      net = run_toy(event->models, kNet, LB_RUN_NO_GRAD);
      if (event->kind == LB_ON_START) {
        CHECK(at::equal(slow[0], net));  // it starts as a copy
      }
    }
    if (event->kind == LB_ON_VALIDATE) {
      CHECK(at::equal(run_toy(event->models, kSlow, LB_RUN_NO_GRAD), slow.back()));
    }
  };
  training.run();
  REQUIRE(slow.size() == 2);
  CHECK_FALSE(at::equal(slow[1], slow[0]));
  CHECK_FALSE(at::equal(slow[1], net));
}

TEST_CASE("train loop: metrics of a step") {
  Training training(3);
  training.manifest.performance.peak_tflops_per_gpu = 1.0;
  training.book.on_event = [](const lb_event* event) {
    if (event->kind == LB_ON_STEP) {  // between steps: counts for nobody
      run_toy(event->models, kNet, LB_RUN_NO_GRAD);
    }
  };
  training.run();
  REQUIRE(training.book.values.size() == 3);
  const auto& last = training.book.values[2];
  CHECK(last.at("updates/net") == 3);
  CHECK(last.at("train/samples") == 0);  // the method draws no batches
  CHECK(last.at("perf/role/net/forward_calls") == 2);
  CHECK(last.at("perf/role/net/backward_forwards") == 2);
  CHECK(last.at("perf/model_forward_calls") == 2);
  CHECK(last.at("perf/steps_per_sec") == doctest::Approx(1 / last.at("step_time_sec")));
  CHECK(last.count("perf/estimated_mfu") == 0);  // the network does not say what it did
  CHECK(last.at("perf/forward_sec") > 0);
  CHECK(last.at("perf/backward_sec") > 0);
  CHECK(last.at("perf/optimizer_sec") > 0);
  CHECK(last.at("perf/forward_sec") + last.at("perf/backward_sec") + last.at("perf/optimizer_sec") +
            last.at("perf/data_wait_sec") <=
        last.at("step_time_sec"));

  Training quiet(1);
  quiet.manifest.performance.is_enabled = false;
  quiet.run();
  for (const auto& [name, value] : quiet.book.values.at(0)) {
    CHECK_FALSE(name.starts_with("perf/"));
    CHECK_FALSE(name.starts_with("mem/"));
  }
}

TEST_CASE("train loop: micro-steps of an update run across the end of an epoch") {
  const auto metrics = [](int64_t length, int64_t batch_size, int64_t accumulation) {
    Training training(1);
    training.manifest.method = toy_method({.plans = false});
    training.manifest.data = toy_data(length, batch_size);
    training.manifest.loop.gradient_accumulation_steps = accumulation;
    training.run();
    return training.book.values.at(0);
  };
  // Three samples and four micro-steps of one: the fourth is the first of the next epoch.
  const auto across = metrics(3, 1, 4);
  CHECK(across.at("train/samples") == 4);
  CHECK(across.at("train/epoch") == 1);
  CHECK(across.at("updates/net") == 1);
  // The same four samples at once, and only three of them.
  const auto norm = [](const auto& of) { return of.at("grad_norm/net"); };
  CHECK(norm(across) == doctest::Approx(norm(metrics(4, 4, 1))).epsilon(1e-6));
  CHECK(norm(across) != doctest::Approx(norm(metrics(3, 3, 1))).epsilon(1e-3));
}

TEST_CASE("train loop: a profile of some steps") {
  Training training(4);
  training.run({2, 3});
  const auto& folder = training.manifest.run.output_dir;
  CHECK(std::filesystem::exists(folder / "profile.json"));
  CHECK(std::filesystem::exists(folder / "profile.txt"));

  Training without(2);
  without.run();
  CHECK_FALSE(std::filesystem::exists(without.manifest.run.output_dir / "profile.json"));
  Training late(2);
  late.run({5, 6});
  CHECK_FALSE(std::filesystem::exists(late.manifest.run.output_dir / "profile.json"));
}
