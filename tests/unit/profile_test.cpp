// SPDX-License-Identifier: Apache-2.0
#include "core/base/profile.hpp"

#include <thread>

#include <nlohmann/json.hpp>

#include <doctest/doctest.h>

namespace profile = limbeck::profile;

namespace {

constexpr int64_t kSecond = 1000000000;

profile::Box box(const char* category, const char* name, int64_t begin, int64_t end) {
  return {category, name, 0, begin * kSecond, end * kSecond};
}

}  // namespace

TEST_CASE("profile: nothing is recorded unless it was started") {
  profile::start();
  profile::stop();
  { const profile::Scope scope("step", "step"); }
  CHECK(profile::boxes().empty());
}

TEST_CASE("profile: scopes nest, and threads are told apart") {
  profile::start();
  {
    const profile::Scope outer("step", "step");
    { const profile::Scope inner("round", "round"); }
    std::thread([] {
      profile::name_thread("tracker x");
      const profile::Scope other("tracker", "x");
    }).join();
  }
  profile::stop();
  const auto boxes = profile::boxes();
  REQUIRE(boxes.size() == 3);
  CHECK(boxes[0].name == "step");
  CHECK(boxes[1].name == "round");
  CHECK(boxes[1].thread == boxes[0].thread);
  CHECK(boxes[2].thread != boxes[0].thread);
  CHECK(boxes[0].begin <= boxes[1].begin);
  CHECK(boxes[1].begin <= boxes[1].end);
  CHECK(boxes[1].end <= boxes[0].end);
}

TEST_CASE("profile: a scope may end after the recording, or in the next one") {
  profile::start();
  {
    const profile::Scope late("step", "late");
    profile::stop();
    CHECK(profile::boxes().at(0).end >= profile::boxes().at(0).begin);
    profile::start();
    const profile::Scope next("step", "next");
  }
  profile::stop();
  const auto boxes = profile::boxes();
  REQUIRE(boxes.size() == 1);
  CHECK(boxes[0].name == "next");
}

TEST_CASE("profile: the trace is Chrome's JSON") {
  profile::start();
  profile::name_thread("training");
  { const profile::Scope scope("hook", "a \"quoted\" \\ name\n"); }
  profile::stop();
  const auto boxes = profile::boxes();
  const auto trace = nlohmann::json::parse(profile::to_trace(boxes));
  nlohmann::json event;
  std::string thread;
  for (const auto& one : trace.at("traceEvents")) {
    if (one.at("ph") == "X") {
      CHECK(event.is_null());
      event = one;
    }
  }
  for (const auto& one : trace.at("traceEvents")) {
    if (one.at("ph") == "M" && one.at("tid") == event.at("tid")) {
      thread = one.at("args").at("name");
    }
  }
  CHECK(event.at("name") == "a \"quoted\" \\ name ");
  CHECK(event.at("cat") == "hook");
  CHECK(event.at("ts").get<double>() ==
        doctest::Approx(1e-3 * static_cast<double>(boxes[0].begin)));
  CHECK(event.at("dur").get<double>() >= 0);
  CHECK(thread == "training");
  CHECK(nlohmann::json::parse(profile::to_trace({})).at("traceEvents").is_array());
}

TEST_CASE("profile: time of a box is its own less what is inside") {
  // step [0, 10): forward [1, 4) with forward [2, 3) in it, backward [4, 9); step [10, 12).
  const auto rows = profile::summarise(
      {box("step", "step", 0, 10), box("forward", "net", 1, 4), box("forward", "net", 2, 3),
       box("backward", "backward", 4, 9), box("step", "step", 10, 12)},
      0);
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].name == "backward");
  CHECK(rows[0].self == doctest::Approx(5));
  CHECK(rows[1].name == "step");
  CHECK(rows[1].self == doctest::Approx(4));
  CHECK(rows[1].total == doctest::Approx(12));
  CHECK(rows[1].calls == 2);
  CHECK(rows[2].name == "net");
  CHECK(rows[2].self == doctest::Approx(3));  // both, without counting the inner one twice
  CHECK(rows[2].total == doctest::Approx(3));
  CHECK(rows[2].calls == 2);
  CHECK(profile::summarise({box("step", "step", 0, 10)}, 1).empty());

  const auto table = profile::to_table(rows);
  CHECK(table.find("  41.7 %      5.000000    5.000000         1  backward\n") !=
        std::string::npos);
  CHECK(table.find("         2  forward net\n") != std::string::npos);
}

TEST_CASE("profile: parts are summed whether or not recording is on") {
  profile::take_seconds();
  {
    const profile::Timed outer(profile::Part::kForward);
    const profile::Timed inner(profile::Part::kForward);  // counted once
    const profile::Timed other(profile::Part::kData);
  }
  const auto seconds = profile::take_seconds();
  CHECK(seconds[static_cast<size_t>(profile::Part::kForward)] > 0);
  CHECK(seconds[static_cast<size_t>(profile::Part::kData)] > 0);
  CHECK(seconds[static_cast<size_t>(profile::Part::kBackward)] == 0);
  CHECK(profile::take_seconds()[static_cast<size_t>(profile::Part::kForward)] == 0);
}
