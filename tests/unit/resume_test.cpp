// SPDX-License-Identifier: Apache-2.0
// A run that is saved, thrown away and resumed goes on as if it had never stopped: every bit of
// its weights, optimizer, averages, shadows, components and metrics.
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "core/base/error.hpp"
#include "core/base/files.hpp"
#include "core/checkpoint/folders.hpp"
#include "core/train/run_state.hpp"
#include "toy_run.hpp"

#include <doctest/doctest.h>

using namespace limbeck;
using namespace limbeck::testing;

namespace {

// What must be equal: numbers as their bits.
struct Outcome {
  std::map<std::string, std::string> state;                  // everything a checkpoint has
  std::map<int64_t, std::map<std::string, double>> metrics;  // by step, without times
};

bool is_time(const std::string& name) {
  return name.find("_sec") != std::string::npos || name.starts_with("perf/") ||
         name.starts_with("mem/") || name.starts_with("checkpoint/");
}

std::map<std::string, std::string> state_of(const std::filesystem::path& checkpoint) {
  std::map<std::string, std::string> state;
  SnapshotReader reader(checkpoint);
  for (const auto& name : reader.names("")) {
    if (reader.is_value(name)) {
      const auto value = reader.value(name);
      if (const auto* integer = std::get_if<int64_t>(&value.value)) {
        state[name] = std::to_string(*integer);
      }
      continue;
    }
    const auto tensor = reader.tensor(name);
    state[name].assign(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes());
  }
  const auto record = open_checkpoint(checkpoint);
  state["data"] = record.facts.at("data").dump();
  state["samples"] = record.facts.at("samples").dump();
  return state;
}

// A run with everything that has a state.
struct SavingRun {
  explicit SavingRun(int64_t steps, const ToyMethod& method = {.plans = true, .keeps_state = true})
      : training(steps) {
    auto& manifest = training.manifest;
    manifest.method = toy_method(method);
    manifest.checkpoint.every_steps = 1;
    manifest.roles[0].ema = EmaSpec{0.9, EmaWarmup::kRatio, 2};
    manifest.roles[0].optimizer.lr_scheduler = "cosine";
    manifest.roles[0].optimizer.lr_warmup_steps = 2;
    manifest.roles[0].optimizer.weight_decay = 0.1;
    if (!method.plans) {
      manifest.data = toy_data(7, 2);
      manifest.data->shuffle = true;
      manifest.loop.gradient_accumulation_steps = 2;
    }
  }

  std::filesystem::path checkpoint(int64_t step) const {
    return training.manifest.run.output_dir / checkpoint_name(step);
  }

  // Metrics of the steps up to `end`, which was the last one.
  void collect(Outcome& outcome, int64_t end) const {
    const auto& values = training.book.values;
    int64_t step = end - static_cast<int64_t>(values.size());
    for (const auto& numbers : values) {
      auto& kept = outcome.metrics[++step];
      for (const auto& [name, value] : numbers) {
        if (!is_time(name)) {
          kept[name] = value;
        }
      }
    }
  }

  Training training;
};

Outcome straight(int64_t steps, const ToyMethod& method) {
  SavingRun run(steps, method);
  run.training.run();
  Outcome outcome;
  run.collect(outcome, steps);
  outcome.state = state_of(run.checkpoint(steps));
  return outcome;
}

// The same in pieces that each begin with nothing but the checkpoint of the piece before.
Outcome pieces(const std::vector<int64_t>& ends, const ToyMethod& method) {
  Outcome outcome;
  std::filesystem::path checkpoint;
  std::vector<std::unique_ptr<SavingRun>> runs;
  for (const int64_t end : ends) {
    runs.push_back(std::make_unique<SavingRun>(ends.back(), method));
    auto& run = *runs.back();
    run.training.book.on_event = [end](const lb_event* event) {
      if (event->kind == LB_ON_STEP && event->step == end) {
        event->request(event, LB_WANT_STOP);
      }
    };
    run.training.run({}, checkpoint.empty() ? std::nullopt : std::optional(checkpoint));
    checkpoint = run.checkpoint(end);
    run.collect(outcome, end);
  }
  outcome.state = state_of(checkpoint);
  return outcome;
}

void check_equal(const Outcome& a, const Outcome& b) {
  REQUIRE(a.state.size() == b.state.size());
  for (const auto& entry : a.state) {
    const auto& name = entry.first;
    CAPTURE(name);
    REQUIRE(b.state.count(name) == 1);
    CHECK((entry.second == b.state.at(name)));
  }
  CHECK((a.metrics == b.metrics));
}

std::string message_of(SavingRun& run, const std::filesystem::path& checkpoint) {
  try {
    run.training.run({}, checkpoint);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

constexpr ToyMethod kRounds = {.plans = true, .keeps_state = true};
constexpr ToyMethod kData = {.plans = false, .keeps_state = true};

}  // namespace

TEST_CASE("resume: a run in pieces has the bits of one run") {
  const auto whole = straight(12, kRounds);
  REQUIRE(whole.metrics.size() == 12);
  REQUIRE(whole.state.count("optimizers.net.updates") == 1);
  check_equal(pieces({6, 12}, kRounds), whole);
  check_equal(pieces({1, 2, 12}, kRounds), whole);  // before and at the first averaged step
  check_equal(pieces({2, 4, 6, 8, 10, 12}, kRounds), whole);
}

TEST_CASE("resume: data go on within an epoch, across epochs, between micro-steps of an update") {
  const auto whole = straight(8, kData);  // 4 samples a step of epochs of 7
  check_equal(pieces({3, 8}, kData), whole);
  check_equal(pieces({1, 2, 3, 4, 5, 8}, kData), whole);
}

TEST_CASE("resume: a stream that cannot seek goes on where it stood") {
  const auto losses = [](const std::vector<int64_t>& ends) {
    std::vector<double> all;
    std::filesystem::path checkpoint;
    std::vector<std::unique_ptr<SavingRun>> runs;
    for (const int64_t end : ends) {
      runs.push_back(std::make_unique<SavingRun>(end, kData));
      auto& run = *runs.back();
      run.training.manifest.data = toy_stream(2);
      run.training.manifest.roles[0].optimizer.lr_scheduler = "constant";
      run.training.run({}, checkpoint.empty() ? std::nullopt : std::optional(checkpoint));
      checkpoint = run.checkpoint(end);
      for (const auto& numbers : run.training.book.values) {
        all.push_back(numbers.at("loss"));
      }
    }
    return all;
  };
  const auto whole = losses({5});
  REQUIRE(whole.size() == 5);
  CHECK(losses({1, 3, 5}) == whole);
}

// ---- rules of what may change

namespace {

// A folder with checkpoints of steps 1 to 4.
struct Saved {
  Saved() : run(4, kRounds) { run.training.run(); }
  std::filesystem::path at(int64_t step) const { return run.checkpoint(step); }

  SavingRun run;
};

}  // namespace

TEST_CASE("resume: max_train_steps is the total") {
  const Saved saved;
  for (const int64_t last : {3, 4}) {
    SavingRun again(last, kRounds);
    again.training.run({}, saved.at(4));
    CHECK(joined(again.training.book.events) == "start 4, save 4, saved 4, end 4");
    CHECK(again.training.book.values.empty());
  }
  SavingRun more(6, kRounds);
  more.training.run({}, saved.at(4));
  CHECK(more.training.book.values.size() == 2);
  CHECK(more.training.book.tracked.front() == 5);
  CHECK(more.training.book.tracked.back() == 6);
}

TEST_CASE("resume: a step that is saved in the folder is not saved again") {
  SavingRun run(2, kRounds);
  run.training.run();
  run.training.book.events.clear();
  run.training.run({}, run.checkpoint(2));
  CHECK(joined(run.training.book.events) == "start 2, end 2");
}

TEST_CASE("resume: a component may put a save off") {
  SavingRun run(3, kRounds);
  run.training.manifest.checkpoint.every_steps = 2;
  run.training.book.on_event = [&](const lb_event* event) {
    if (event->kind == LB_ON_STEP) {
      run.training.book.can_save = event->step != 2;
    }
  };
  run.training.run();
  CHECK_FALSE(std::filesystem::exists(run.checkpoint(2)));
  CHECK(std::filesystem::exists(run.checkpoint(3)));

  SavingRun never(2, kRounds);
  never.training.book.can_save = false;
  CHECK_THROWS_WITH(never.training.run(),
                    doctest::Contains("step 2 was not saved: a component cannot save its state"));
}

TEST_CASE("resume: a callback may ask for a save") {
  SavingRun run(3, kRounds);
  run.training.manifest.checkpoint.every_steps = 0;
  run.training.book.on_event = [&](const lb_event* event) {
    if (event->kind == LB_ON_STEP && event->step == 2) {
      event->request(event, LB_WANT_SAVE);
    }
  };
  run.training.run();
  CHECK(std::filesystem::exists(run.checkpoint(2)));
  CHECK_FALSE(std::filesystem::exists(run.checkpoint(3)));
}

TEST_CASE("resume: without the optimizer's moments, updates and learning rate go on") {
  const Saved saved;
  const auto resumed = [&](const std::filesystem::path& from, bool loads) {
    SavingRun run(5, kRounds);
    run.training.manifest.checkpoint.loads_optimizer = loads;
    run.training.run({}, from);
    return run.training.book.values.at(0);
  };
  const auto all = resumed(saved.at(4), true);
  const auto fresh = resumed(saved.at(4), false);
  CHECK(fresh.at("lr/net") == all.at("lr/net"));
  CHECK(fresh.at("updates/net") == 5);
  CHECK(fresh.at("loss") == all.at("loss"));  // of the weights before the update

  SavingRun small(4, kRounds);
  small.training.manifest.checkpoint.saves_optimizer = false;
  small.training.run();
  const auto state = state_of(small.checkpoint(4));
  CHECK(state.count("optimizers.net.updates") == 1);
  for (const auto& [name, bytes] : state) {
    CHECK(name.find("exp_avg") == std::string::npos);
  }
  const auto without = resumed(small.checkpoint(4), true);
  CHECK((without == fresh || without.at("loss") == fresh.at("loss")));
  // Moments that begin anew make another step than moments that go on.
  SavingRun next(6, kRounds);
  next.training.run({}, saved.at(4));
  SavingRun other(6, kRounds);
  other.training.manifest.checkpoint.loads_optimizer = false;
  other.training.run({}, saved.at(4));
  CHECK(next.training.book.values.at(1).at("loss") != other.training.book.values.at(1).at("loss"));
}

TEST_CASE("resume: an average may come and go") {
  const Saved saved;
  SavingRun without(4, kRounds);
  without.training.manifest.roles[0].ema.reset();
  without.training.run();

  // Added: it begins with the weights of the checkpoint.
  SavingRun added(4, kRounds);
  added.training.run({}, without.checkpoint(4));
  const auto begun = state_of(added.checkpoint(4));
  int averaged = 0;
  for (const auto& [name, bytes] : begun) {
    if (name.starts_with("ema.net.") && name != "ema.net.updates") {
      ++averaged;
      CHECK((bytes == begun.at("roles." + name.substr(4))));
    }
  }
  CHECK(averaged > 0);
  CHECK(begun.at("ema.net.updates") == "0");

  // Removed: left aside.
  SavingRun removed(4, kRounds);
  removed.training.manifest.roles[0].ema.reset();
  removed.training.run({}, saved.at(4));
  CHECK(state_of(removed.checkpoint(4)).count("ema.net.updates") == 0);
}

TEST_CASE("resume: an average that was saved is not the weights, and comes back as it was") {
  const Saved saved;
  const auto state = state_of(saved.at(4));
  int differing = 0;
  for (const auto& [name, bytes] : state) {
    if (name.starts_with("ema.net.") && name != "ema.net.updates") {
      differing += bytes != state.at("roles." + name.substr(4)) ? 1 : 0;
    }
  }
  CHECK(differing > 0);
  SavingRun again(4, kRounds);
  again.training.run({}, saved.at(4));
  check_equal({state_of(again.checkpoint(4)), {}}, {state, {}});
}

TEST_CASE("resume: what does not fit is an error that says so") {
  const Saved saved;
  const auto error_of = [&](const std::function<void(Manifest&)>& change) {
    SavingRun run(5, kRounds);
    change(run.training.manifest);
    return message_of(run, saved.at(4));
  };
  CHECK(error_of([](Manifest& m) {
          m.roles[0].name = "other";
          m.roles[1].shadow_of = "other";
          m.method.roles["net"] = "other";
          m.callbacks.clear();
        }).find("the checkpoint has no role 'other', which this manifest trains") !=
        std::string::npos);
  CHECK(error_of([](Manifest& m) {
          m.roles[0].dtype = Precision::kFloat64;
        }).find("of another type") != std::string::npos);
  CHECK(error_of([](Manifest& m) {
          m.roles[0].init_from = "/nowhere/else";
        }).empty());  // the run had none: nothing can have been moved there
}

TEST_CASE("resume: later checkpoints of an abandoned way are set aside") {
  SavingRun run(4, kRounds);
  run.training.run();
  auto& manifest = run.training.manifest;
  const auto from = run.checkpoint(2);
  Run again(manifest);
  run.training.book.on_event = [](const lb_event* event) {
    if (event->kind == LB_ON_STEP && event->step == 3) {
      event->request(event, LB_WANT_STOP);
    }
  };
  train(again, {}, from);
  CHECK(std::filesystem::exists(run.checkpoint(3)));
  CHECK_FALSE(std::filesystem::exists(run.checkpoint(4)));
  CHECK(std::filesystem::exists(run.checkpoint(4).string() + ".abandoned"));
}

TEST_CASE("resume: a run from the beginning does not mix with checkpoints of another") {
  SavingRun run(2, kRounds);
  run.training.run();
  CHECK_THROWS_WITH(run.training.run(), doctest::Contains("has checkpoints of an earlier run"));
}

// ---- checkpoints of every version that was released

namespace {

const std::filesystem::path kGolden = LIMBECK_SOURCE_DIR "/tests/golden/checkpoints";

}  // namespace

// Run it with --no-skip when the version of the format was raised; keep the old ones.
TEST_CASE("resume: write the golden checkpoint of this version" * doctest::skip()) {
  const Saved saved;
  const auto folder = kGolden / ("v" + std::to_string(CheckpointRecord::kVersion));
  std::filesystem::create_directories(folder);
  std::filesystem::copy(saved.at(4), folder / checkpoint_name(4),
                        std::filesystem::copy_options::recursive);
}

TEST_CASE("resume: golden checkpoints of all versions go on as they did") {
  for (int64_t version = 1; version <= CheckpointRecord::kVersion; ++version) {
    CAPTURE(version);
    SavingRun run(6, kRounds);
    run.training.run({}, kGolden / ("v" + std::to_string(version)) / checkpoint_name(4));
    const auto& values = run.training.book.values;
    REQUIRE(values.size() == 2);
    CHECK(values[0].at("loss") == doctest::Approx(0.00899962).epsilon(1e-5));
    CHECK(values[1].at("loss") == doctest::Approx(0.00934782).epsilon(1e-5));
    CHECK(values[1].at("updates/net") == 6);
    CHECK(run.training.book.state.calls == 12);
  }
}
