// SPDX-License-Identifier: Apache-2.0
#include "core/track/trackers.hpp"

#include <utility>

namespace limbeck {

Trackers::Trackers(const Manifest& manifest,
                   const std::string& id,
                   int64_t first_step,
                   TrackerLimits limits)
    : limits_(limits) {
  const auto directory = manifest.run.output_dir.string();
  const lb_tracked_run run = {sizeof(lb_tracked_run),
                              0,
                              id.c_str(),
                              manifest.run.name.c_str(),
                              directory.c_str(),
                              manifest.resolved.c_str(),
                              first_step};
  for (const auto& spec : manifest.trackers) {
    threads_.push_back(std::make_unique<TrackerThread>(spec, run, limits));
  }
}

Trackers::~Trackers() { close(); }

void Trackers::scalars(int64_t step, std::map<std::string, double> numbers) {
  if (!numbers.empty()) {
    post({step, std::move(numbers), std::nullopt});
  }
}

void Trackers::file(int64_t step, ReportedFile file) { post({step, {}, std::move(file)}); }

void Trackers::post(TrackedRecord record) {
  const auto shared = std::make_shared<const TrackedRecord>(std::move(record));
  for (const auto& thread : threads_) {
    thread->post(shared);
  }
}

std::vector<TrackerReport> Trackers::close() {
  for (const auto& thread : threads_) {
    thread->finish(has_succeeded_);
  }
  const auto deadline = std::chrono::steady_clock::now() + limits_.patience;
  std::vector<TrackerReport> reports;
  for (const auto& thread : threads_) {
    reports.push_back(thread->wait_until(deadline));
  }
  threads_.clear();
  return reports;
}

}  // namespace limbeck
