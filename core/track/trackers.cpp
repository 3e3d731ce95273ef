// SPDX-License-Identifier: Apache-2.0
#include "core/track/trackers.hpp"

#include <utility>

#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/plugin/status.hpp"

namespace limbeck {

Trackers::Trackers(const Manifest& manifest, int64_t first_step) {
  const auto directory = manifest.run.output_dir.string();
  for (const auto& spec : manifest.trackers) {
    const auto& vtable = spec.component->vtable<lb_tracker_vtable>();
    const lb_tracked_run run = {sizeof(lb_tracked_run),
                                0,
                                manifest.run.name.c_str(),
                                manifest.run.name.c_str(),
                                directory.c_str(),
                                manifest.resolved.c_str(),
                                first_step};
    void* self = nullptr;
    check(vtable.open(spec.component->library->state, spec.config.get(), &run, &self),
          cat("while opening tracker '", spec.component->name(), "'"));
    trackers_.push_back({&spec, &vtable, self});
  }
  if (!trackers_.empty()) {
    thread_ = std::thread([this] { work(); });
  }
}

Trackers::~Trackers() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
  for (auto& tracker : trackers_) {
    tracker.vtable->close(tracker.self, succeeded_ ? 1 : 0);
  }
}

void Trackers::scalars(int64_t step, std::map<std::string, double> numbers) {
  if (trackers_.empty() || numbers.empty()) {
    return;
  }
  post([this, step, numbers = std::move(numbers)] {
    std::vector<const char*> names;
    std::vector<double> values;
    for (const auto& [name, value] : numbers) {
      names.push_back(name.c_str());
      values.push_back(value);
    }
    for (auto& tracker : trackers_) {
      ask(tracker, [&] {
        return tracker.vtable->scalars(tracker.self, step, names.data(), values.data(),
                                       static_cast<uint32_t>(names.size()));
      });
    }
  });
}

void Trackers::file(int64_t step, ReportedFile reported) {
  if (trackers_.empty()) {
    return;
  }
  post([this, step, reported = std::move(reported)] {
    for (auto& tracker : trackers_) {
      if (LB_CAN(tracker.vtable, file)) {
        ask(tracker, [&] {
          return tracker.vtable->file(tracker.self, step, reported.name.c_str(),
                                      reported.media_type.c_str(), reported.path.c_str(),
                                      reported.caption.c_str());
        });
      }
    }
  });
}

void Trackers::post(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(job));
  }
  changed_.notify_all();
}

void Trackers::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_ending_ || !queue_.empty(); });
    if (queue_.empty()) {
      return;
    }
    const auto job = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

void Trackers::ask(Open& tracker, const std::function<lb_status*()>& question) {
  if (tracker.has_failed) {
    return;
  }
  if (auto* status = question()) {
    tracker.has_failed = true;
    log::warn("track", cat("tracker '", tracker.spec->component->name(),
                           "' is left out from here "
                           "on: ",
                           to_error(status).what()));
  }
}

}  // namespace limbeck
