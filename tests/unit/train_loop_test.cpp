// SPDX-License-Identifier: Apache-2.0
// The loop with a toy network, a toy method that needs no data, and a callback and a tracker that
// write down what they are told.
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <unistd.h>

#include <ATen/ATen.h>

#include "core/base/error.hpp"
#include "core/plugin/host_table.hpp"
#include "core/plugin/status.hpp"
#include "core/tensor/guard.hpp"
#include "core/tensor/handle.hpp"
#include "core/train/train_loop.hpp"
#include "toy_network.hpp"

#include <doctest/doctest.h>

using namespace limbeck;
using limbeck::testing::toy_spec;

namespace {

enum : uint32_t { kNet, kSlow };

constexpr lb_role kRoles[] = {{"net", "Trained.", "test.toy/1", LB_ROLE_TRAINED, 0},
                              {"slow", "Follows.", "test.toy/1", LB_ROLE_SHADOW, kNet}};
constexpr lb_role kNeeds[] = {{"net", "Looked at.", "test.toy/1", 0, 0},
                              {"slow", "Looked at.", "test.toy/1", 0, 0}};

at::Tensor run_toy(const lb_models* models,
                   uint32_t role,
                   uint32_t flags,
                   const at::Tensor& x = at::sin(at::arange(12, at::kFloat)).view({3, 4})) {
  lb_batch in;
  in.put("x", x);
  lb_batch out;
  check(models->run(models, role, flags, &in, &out));
  return out.tensor("y");
}

// What the components of a test do and saw.
struct Diary {
  std::vector<std::string> events;                    // "step 3"
  std::vector<std::map<std::string, double>> values;  // of LB_ON_STEP
  std::function<void(const lb_event*)> on_event = [](auto*) {};
  // What the method makes of its loss, and of the network's output.
  std::function<at::Tensor(int64_t step, const at::Tensor& loss, const at::Tensor& y)> bend =
      [](int64_t, const at::Tensor& loss, const at::Tensor&) { return loss; };
  std::vector<int64_t> tracked;  // steps of scalars()
  std::vector<std::string> names;
  int closed_with = -1;
};
Diary* diary = nullptr;

constexpr const char* kNames[] = {"start", "begin", "round", "step", "validate",
                                  "save",  "saved", "error", "end"};

lb_status* create_nothing(lb_state*, const lb_config*, void** out) {
  static int nothing;
  *out = &nothing;
  return nullptr;
}
void destroy_nothing(void*) {}

lb_status* plan_rounds(void*, int64_t, lb_plan* plan) {
  return guarded([&] {
    check(plan->round(plan, 2, LB_ROUND_OWN_DATA));
    check(plan->update(plan, kNet));
    check(plan->average(plan, kSlow, 0.5));
  });
}

lb_status* toy_loss(void*, const lb_step* step, lb_tensor** out) {
  return guarded([&] {
    const auto y = step->batch == nullptr
                       ? run_toy(step->models, kNet, 0)
                       : run_toy(step->models, kNet, 0, step->batch->tensor("x"));
    const auto loss = diary->bend(step->step, y.square().mean(), y);
    step->metrics->tensor(step->metrics, "loss", lend(loss), LB_MEAN);
    *out = give(loss);
  });
}

lb_status* write_event(void*, const lb_event* event) {
  return guarded([&] {
    diary->events.push_back(std::string(kNames[event->kind]) + " " + std::to_string(event->step));
    if (event->kind == LB_ON_STEP) {
      auto& numbers = diary->values.emplace_back();
      for (const auto& [name, value] : event->values->entries) {
        numbers[name] = std::get<double>(value);
      }
    }
    diary->on_event(event);
  });
}

lb_status* open_diary(lb_state*, const lb_config*, const lb_tracked_run*, void** out) {
  *out = diary;
  return nullptr;
}
lb_status* track_step(
    void* self, int64_t step, const char* const* names, const double*, uint32_t count) {
  auto& book = *static_cast<Diary*>(self);
  book.tracked.push_back(step);
  book.names.insert(book.names.end(), names, names + count);
  return nullptr;
}
void close_diary(void* self, int32_t succeeded) {
  static_cast<Diary*>(self)->closed_with = succeeded;
}

template <class Vtable>
ComponentSpec component_spec(const char* key,
                             const char* kind,
                             const Vtable& vtable,
                             lb_component& table,
                             Component& component) {
  static const Library library = {};
  table.struct_size = sizeof(lb_component);
  table.kind = kind;
  table.name = "toy";
  table.vtable = &vtable;
  component = {&table, &library};
  ComponentSpec spec;
  spec.key = key;
  spec.component = &component;
  spec.config = std::make_shared<lb_config>();
  return spec;
}

// Without `plans`: one round of as many micro-steps as the manifest says, on its data.
ComponentSpec toy_method(bool plans = true) {
  static lb_method_vtable vtable = {sizeof(lb_method_vtable),
                                    0,
                                    LB_ROLES(kRoles),
                                    nullptr,
                                    create_nothing,
                                    destroy_nothing,
                                    nullptr,
                                    plan_rounds,
                                    toy_loss,
                                    nullptr,
                                    nullptr};
  vtable.plan = plans ? plan_rounds : nullptr;
  static lb_component table;
  static Component component;
  return component_spec("method", "limbeck.method/1", vtable, table, component);
}

CallbackSpec toy_callback() {
  static const lb_callback_vtable vtable = {sizeof(lb_callback_vtable),
                                            0,
                                            LB_ROLES(kNeeds),
                                            ~uint64_t{0},
                                            create_nothing,
                                            destroy_nothing,
                                            write_event,
                                            nullptr,
                                            nullptr,
                                            nullptr};
  static lb_component table;
  static Component component;
  CallbackSpec spec;
  spec.component = component_spec("callbacks.toy", "limbeck.callback/1", vtable, table, component);
  spec.name = "toy";
  return spec;
}

ComponentSpec toy_tracker() {
  static const lb_tracker_vtable vtable = {
      sizeof(lb_tracker_vtable), 0, open_diary, track_step, nullptr, close_diary};
  static lb_component table;
  static Component component;
  return component_spec("training.tracker.toy", "limbeck.tracker/1", vtable, table, component);
}

// Samples x [4] that repeat after three.
struct Samples {
  static inline int64_t length = 3;
};
lb_status* open_samples(lb_state*, const lb_config*, const lb_source*, void** out) {
  return create_nothing(nullptr, nullptr, out);
}
lb_status* sample_fields(void*, lb_fields* out) {
  static const int64_t sizes[] = {4};
  static const lb_field fields[] = {{"x", sizes, LB_F32, 1, 0, 0}};
  *out = {sizeof(lb_field), 1, fields};
  return nullptr;
}
lb_status* read_sample(void*, int64_t index, lb_batch* sample) {
  return guarded([&] {
    sample->put("x", at::sin(at::arange(4, at::kFloat) + static_cast<double>(index % 3)));
  });
}

DataSpec toy_data(int64_t length, int64_t batch_size) {
  static const lb_dataset_vtable vtable = [] {
    lb_dataset_vtable v{};
    v.struct_size = sizeof(v);
    v.open = open_samples;
    v.close = destroy_nothing;
    v.length = [](void*) { return Samples::length; };
    v.fields = sample_fields;
    v.read = read_sample;
    return v;
  }();
  static lb_component table;
  static Component component;
  Samples::length = length;
  DataSpec data;
  data.dataset = component_spec("training.data", "limbeck.dataset/1", vtable, table, component);
  data.batch_size = batch_size;
  data.shuffle = false;
  return data;
}

// A run of `steps` steps in a folder of its own, with the diary open.
class Training {
 public:
  explicit Training(int64_t steps) {
    std::string name = (std::filesystem::temp_directory_path() / "limbeck_loop_XXXXXX").string();
    manifest.run.output_dir = mkdtemp(name.data());
    manifest.run.name = "toy";
    manifest.loop.max_train_steps = steps;
    manifest.method = toy_method();
    manifest.callbacks = {toy_callback()};
    manifest.trackers = {toy_tracker()};
    manifest.roles = {toy_spec(true), toy_spec(false)};
    manifest.roles[1].name = "slow";
    manifest.roles[1].is_shadow = true;
    manifest.roles[1].shadow_of = "net";
    diary = &book;
  }
  ~Training() {
    diary = nullptr;
    std::filesystem::remove_all(manifest.run.output_dir);
  }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  void run(const ProfileSteps& profile = {}) {
    Run run(manifest);
    train(run, profile);
  }

  Manifest manifest;
  Diary book;
};

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) {
    text += (text.empty() ? "" : ", ") + word;
  }
  return text;
}

}  // namespace

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
      train(run);
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
    training.manifest.method = toy_method(false);
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
