// SPDX-License-Identifier: Apache-2.0
// Trackers on their threads. No test here waits for a time to pass: gates say who goes on when.
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/plugin/status.hpp"
#include "core/track/trackers.hpp"

#include <doctest/doctest.h>

namespace {

using limbeck::Manifest;
using limbeck::Trackers;

// What the fake trackers do, and what they were told. One test uses it at a time.
class Stage {
 public:
  // The code of the next answers; LB_OK: none fails.
  void answer(lb_code code) {
    const std::lock_guard lock(mutex_);
    code_ = code;
  }
  // Calls do not return until open_gate().
  void shut_gate() {
    const std::lock_guard lock(mutex_);
    is_shut_ = true;
  }
  void open_gate() {
    const std::lock_guard lock(mutex_);
    is_shut_ = false;
    changed_.notify_all();
  }
  // Until a call has arrived for the n-th time.
  void await_calls(int n) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return calls_ >= n; });
  }
  void await_closed() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ > 0; });
  }
  std::vector<int64_t> steps() {
    const std::lock_guard lock(mutex_);
    return steps_;
  }
  std::string files() {
    const std::lock_guard lock(mutex_);
    return files_;
  }
  int closed_well() {
    const std::lock_guard lock(mutex_);
    return closed_well_;
  }
  std::thread::id opened_on;
  std::thread::id told_on;

  lb_status* tell(int64_t step, const std::string& file) {
    std::unique_lock lock(mutex_);
    ++calls_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !is_shut_; });
    told_on = std::this_thread::get_id();
    if (code_ != LB_OK) {
      return limbeck::make_status(code_, code_ == LB_INTERNAL
                                             ? "step " + std::to_string(step) + " is odd"
                                             : "the disk is full");
    }
    if (file.empty()) {
      steps_.push_back(step);
    } else {
      files_ += file;
    }
    return nullptr;
  }
  void close(bool succeeded) {
    const std::lock_guard lock(mutex_);
    ++closed_;
    closed_well_ += succeeded ? 1 : 0;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  lb_code code_ = LB_OK;
  bool is_shut_ = false;
  int calls_ = 0;
  int closed_ = 0;
  int closed_well_ = 0;
  std::vector<int64_t> steps_;
  std::string files_;
};

// The stage of tracker k of the test that runs. A tracker that is left behind keeps its own.
std::shared_ptr<Stage> stages[2];

struct FakeTracker {
  std::shared_ptr<Stage> stage;
};

template <int kStage>
lb_status* open_fake(lb_state*, const lb_config*, const lb_tracked_run* run, void** out) {
  if (stages[kStage] == nullptr) {
    return limbeck::make_status(LB_INVALID_ARGUMENT, "no such folder: " + std::string(run->name));
  }
  stages[kStage]->opened_on = std::this_thread::get_id();
  *out = new FakeTracker{stages[kStage]};
  return nullptr;
}
lb_status* tell_fake(void* self, int64_t step, const char* const*, const double*, uint32_t) {
  return static_cast<FakeTracker*>(self)->stage->tell(step, "");
}
lb_status* file_fake(void* self,
                     int64_t step,
                     const char* name,
                     const char* media_type,
                     const char* path,
                     const char* caption) {
  const auto text = std::string(name) + " " + media_type + " " + path + " " + caption;
  return static_cast<FakeTracker*>(self)->stage->tell(step, text);
}
void close_fake(void* self, int32_t succeeded) {
  auto* tracker = static_cast<FakeTracker*>(self);
  tracker->stage->close(succeeded != 0);
  delete tracker;
}

template <int kStage>
const limbeck::Component& fake_component() {
  static const lb_tracker_vtable vtable = {
      sizeof(lb_tracker_vtable), 0, open_fake<kStage>, tell_fake, file_fake, close_fake};
  static const lb_component table = {sizeof(lb_component),
                                     0,
                                     "limbeck.tracker/1",
                                     kStage == 0 ? "first" : "second",
                                     "A test tracker.",
                                     {sizeof(lb_option), 0, nullptr},
                                     nullptr,
                                     &vtable,
                                     nullptr};
  static const limbeck::Library library = {};
  static const limbeck::Component instance = {&table, &library};
  return instance;
}

// A manifest with one or two fake trackers, on new stages.
Manifest tracked_by(int count) {
  Manifest manifest;
  manifest.run.name = "run";
  stages[0] = std::make_shared<Stage>();
  stages[1] = std::make_shared<Stage>();
  for (int k = 0; k < count; ++k) {
    limbeck::ComponentSpec spec;
    spec.component = k == 0 ? &fake_component<0>() : &fake_component<1>();
    spec.config = std::make_shared<lb_config>();
    manifest.trackers.push_back(spec);
  }
  return manifest;
}

void tell_steps(Trackers& trackers, int64_t first, int64_t last) {
  for (int64_t step = first; step <= last; ++step) {
    trackers.scalars(step, {{"loss", 0.5}});
  }
}

}  // namespace

TEST_CASE("trackers: numbers and files arrive in order, on one thread that is not the loop's") {
  const auto manifest = tracked_by(1);
  Trackers trackers(manifest, "id", 1);
  tell_steps(trackers, 1, 3);
  trackers.file(3, {"validation", "image/png", "/x.png", "digit 3"});
  trackers.scalars(4, {});  // nothing to tell
  trackers.set_succeeded();
  const auto reports = trackers.close();
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].kept == 4);
  CHECK(reports[0].lost == 0);
  CHECK(reports[0].failures == 0);
  CHECK(stages[0]->steps() == std::vector<int64_t>{1, 2, 3});
  CHECK(stages[0]->files() == "validation image/png /x.png digit 3");
  CHECK(stages[0]->closed_well() == 1);
  CHECK(stages[0]->opened_on == stages[0]->told_on);
  CHECK(stages[0]->told_on != std::this_thread::get_id());
}

TEST_CASE("trackers: what waits is written when the run ends by an error") {
  const auto manifest = tracked_by(1);
  stages[0]->shut_gate();
  {
    Trackers trackers(manifest, "id", 1);
    tell_steps(trackers, 1, 100);
    stages[0]->open_gate();
  }
  CHECK(stages[0]->steps().size() == 100);
  CHECK(stages[0]->closed_well() == 0);
}

TEST_CASE("trackers: one that cannot be opened is an error at the start") {
  const auto manifest = tracked_by(2);
  stages[1] = nullptr;
  std::string said;
  try {
    const Trackers trackers(manifest, "id", 1);
  } catch (const limbeck::Error& error) {
    said = error.what();
  }
  CHECK(said.find("no such folder: run") == 0);
  CHECK(said.find("while opening tracker 'second'") != std::string::npos);
  stages[0]->await_closed();
}

TEST_CASE("trackers: a full disk loses nothing when there is room again") {
  const auto manifest = tracked_by(1);
  stages[0]->answer(LB_UNAVAILABLE);
  Trackers trackers(manifest, "id", 1);
  tell_steps(trackers, 1, 1);
  stages[0]->await_calls(1);
  tell_steps(trackers, 2, 2);
  stages[0]->await_calls(2);  // the first record again, not the second
  stages[0]->answer(LB_OK);
  tell_steps(trackers, 3, 3);
  const auto report = trackers.close().at(0);
  CHECK(stages[0]->steps() == std::vector<int64_t>{1, 2, 3});
  CHECK(report.kept == 3);
  CHECK(report.lost == 0);
  CHECK(report.failures == 2);
  CHECK(report.kinds == 1);
}

TEST_CASE("trackers: what is still refused at the end is counted as lost") {
  const auto manifest = tracked_by(1);
  stages[0]->answer(LB_UNAVAILABLE);
  Trackers trackers(manifest, "id", 1);
  tell_steps(trackers, 1, 20);
  const auto report = trackers.close().at(0);
  CHECK(report.kept == 0);
  CHECK(report.lost == 20);
  CHECK(report.kinds == 1);
  CHECK(report.failures >= 1);
  CHECK(report.failures <= 21);
}

TEST_CASE("trackers: a tracker that throws is asked again at the next step, the other goes on") {
  const auto manifest = tracked_by(2);
  stages[0]->answer(LB_INTERNAL);  // with a message that names the step
  Trackers trackers(manifest, "id", 1);
  tell_steps(trackers, 1, 50);
  stages[0]->await_calls(50);
  stages[0]->answer(LB_OK);
  tell_steps(trackers, 51, 60);
  const auto reports = trackers.close();
  CHECK(reports.at(0).lost + reports.at(0).kept == 60);
  CHECK(reports.at(0).lost >= 49);  // the 50th was in hand when the answer changed
  CHECK(reports.at(0).kept >= 10);
  CHECK(reports.at(0).kinds == 8);  // different messages are not all logged
  CHECK(reports.at(1).kept == 60);
}

TEST_CASE("trackers: a slow one holds up nobody, and what is too much for it is counted") {
  const auto manifest = tracked_by(2);
  stages[0]->shut_gate();
  Trackers trackers(manifest, "id", 1, {10, std::chrono::seconds(600)});
  tell_steps(trackers, 1, 1);
  stages[0]->await_calls(1);
  tell_steps(trackers, 2, 10);
  for (int64_t step = 11; step <= 30; ++step) {  // the second one keeps up
    stages[1]->await_calls(static_cast<int>(step) - 1);
    tell_steps(trackers, step, step);
  }
  stages[1]->await_calls(30);
  CHECK(stages[0]->steps().empty());
  stages[0]->open_gate();
  const auto reports = trackers.close();
  CHECK(stages[0]->steps().size() == 10);
  CHECK(reports.at(0).kept == 10);
  CHECK(reports.at(0).lost == 20);
  CHECK(reports.at(0).failures == 0);
  CHECK(reports.at(1).kept == 30);
}

TEST_CASE("trackers: one that never returns is left behind") {
  const auto manifest = tracked_by(2);
  stages[0]->shut_gate();
  Trackers trackers(manifest, "id", 1, {10, std::chrono::seconds(0)});
  tell_steps(trackers, 1, 2);
  stages[0]->await_calls(1);
  stages[1]->await_calls(2);
  const auto reports = trackers.close();
  CHECK(reports.at(0).is_left_behind);
  CHECK(stages[0]->steps().empty());
  // Its thread may come back at any time and finds what it needs.
  stages[0]->open_gate();
  stages[0]->await_closed();
  stages[1]->await_closed();
  CHECK(stages[0]->steps() == std::vector<int64_t>{1, 2});
}
