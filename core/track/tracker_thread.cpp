// SPDX-License-Identifier: Apache-2.0
#include "core/track/tracker_thread.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "core/base/log.hpp"
#include "core/base/profile.hpp"
#include "core/base/text.hpp"
#include "core/plugin/status.hpp"

namespace limbeck {

struct TrackerThread::State {
  const lb_tracker_vtable* vtable = nullptr;
  size_t most_waiting = 0;
  void* self = nullptr;  // of the tracker; used by its thread only

  std::mutex mutex;  // of everything below
  std::condition_variable changed;
  std::deque<std::shared_ptr<const TrackedRecord>> queue;  // the first one may be in hand
  bool has_news = false;
  bool is_ending = false;
  bool has_succeeded = false;
  bool is_open = false;
  lb_status* refusal = nullptr;  // of open()
  bool is_done = false;
  TrackerReport report;
  std::set<std::string> said;
  bool has_said_full = false;

  void tell_failure(lb_status* status, bool is_kept);
  void drain(std::unique_lock<std::mutex>& lock);
};

namespace {

constexpr size_t kMostKinds = 8;  // a message with a number in it must not fill the log

lb_status* offer(const lb_tracker_vtable& vtable, void* self, const TrackedRecord& record) {
  if (record.file.has_value()) {
    const auto& file = *record.file;
    return LB_CAN(&vtable, file)
               ? vtable.file(self, record.step, file.name.c_str(), file.media_type.c_str(),
                             file.path.c_str(), file.caption.c_str())
               : nullptr;
  }
  std::vector<const char*> names;
  std::vector<double> values;
  for (const auto& [name, value] : record.numbers) {
    names.push_back(name.c_str());
    values.push_back(value);
  }
  return vtable.scalars(self, record.step, names.data(), values.data(),
                        static_cast<uint32_t>(names.size()));
}

}  // namespace

// Under the mutex. Takes the status over.
void TrackerThread::State::tell_failure(lb_status* status, bool is_kept) {
  const Error error = to_error(status);
  ++report.failures;
  if (said.size() == kMostKinds || !said.insert(error.message()).second) {
    return;
  }
  ++report.kinds;
  log::warn("track", cat("tracker '", report.name, "' failed and ",
                         is_kept ? "is tried again later" : "lost a record", ": ", error.what()));
}

// Offers what waits until the queue is empty or the tracker cannot take more now.
void TrackerThread::State::drain(std::unique_lock<std::mutex>& lock) {
  while (!queue.empty()) {
    const auto record = queue.front();
    lock.unlock();
    lb_status* status = nullptr;
    {
      const profile::Scope scope("tracker", report.name);
      status = offer(*vtable, self, *record);
    }
    lock.lock();
    if (status == nullptr) {
      ++report.kept;
    } else {
      const bool is_kept = status->code == LB_UNAVAILABLE;
      tell_failure(status, is_kept);
      if (is_kept) {
        return;
      }
      ++report.lost;
    }
    queue.pop_front();
  }
}

void TrackerThread::work(State& state, const ComponentSpec& spec, const lb_tracked_run* run) {
  profile::name_thread("tracker " + spec.component->name());
  lb_status* refusal =
      state.vtable->open(spec.component->library->state, spec.config.get(), run, &state.self);
  std::unique_lock lock(state.mutex);
  state.is_open = true;
  state.refusal = refusal;
  state.changed.notify_all();
  if (refusal != nullptr) {
    return;
  }
  while (true) {
    state.changed.wait(lock, [&] { return state.has_news || state.is_ending; });
    const bool is_last = state.is_ending;
    state.has_news = false;
    state.drain(lock);
    if (is_last) {
      break;
    }
  }
  state.report.lost += state.queue.size();
  state.queue.clear();
  const int32_t has_succeeded = state.has_succeeded ? 1 : 0;
  lock.unlock();
  state.vtable->close(state.self, has_succeeded);
  lock.lock();
  state.is_done = true;
  state.changed.notify_all();
}

TrackerThread::TrackerThread(const ComponentSpec& spec,
                             const lb_tracked_run& run,
                             const TrackerLimits& limits)
    : state_(std::make_shared<State>()), patience_(limits.patience) {
  state_->vtable = &spec.component->vtable<lb_tracker_vtable>();
  state_->most_waiting = limits.waiting;
  state_->report.name = spec.component->name();
  thread_ = std::thread([state = state_, &spec, &run] { work(*state, spec, &run); });
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [this] { return state_->is_open; });
  if (state_->refusal != nullptr) {
    lock.unlock();
    thread_.join();
    check(state_->refusal, cat("while opening tracker '", spec.component->name(), "'"));
  }
}

TrackerThread::~TrackerThread() {
  if (thread_.joinable()) {
    finish(false);
    wait_until(std::chrono::steady_clock::now() + patience_);
  }
}

void TrackerThread::post(std::shared_ptr<const TrackedRecord> record) {
  const std::lock_guard lock(state_->mutex);
  if (state_->queue.size() >= state_->most_waiting) {
    ++state_->report.lost;
    if (!std::exchange(state_->has_said_full, true)) {
      log::warn("track", cat("tracker '", state_->report.name, "' cannot keep up: ",
                             state_->queue.size(), " records wait, further ones are lost"));
    }
    return;
  }
  state_->queue.push_back(std::move(record));
  state_->has_news = true;
  state_->changed.notify_all();
}

void TrackerThread::finish(bool succeeded) {
  const std::lock_guard lock(state_->mutex);
  state_->has_succeeded = succeeded;
  state_->is_ending = true;
  state_->changed.notify_all();
}

TrackerReport TrackerThread::wait_until(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(state_->mutex);
  const bool is_done =
      state_->changed.wait_until(lock, deadline, [this] { return state_->is_done; });
  auto report = state_->report;
  lock.unlock();
  const auto who = cat("tracker '", report.name, "'");
  if (is_done) {
    thread_.join();
  } else {
    thread_.detach();
    report.is_left_behind = true;
    log::warn("track", cat(who, " does not return and is left behind; what it still had to write ",
                           "is lost"));
  }
  if (report.lost > 0) {
    log::warn("track", cat(who, " lost ", report.lost, " of ", report.lost + report.kept,
                           " records; ", report.failures, " calls failed"));
  } else if (report.failures > 0) {
    log::info("track", cat(who, " failed ", report.failures, " times and lost nothing"));
  }
  return report;
}

}  // namespace limbeck
