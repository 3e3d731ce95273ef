// SPDX-License-Identifier: Apache-2.0
#include "basics/jsonl.hpp"

#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <utility>
#include <vector>

namespace basics {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

Jsonl::Jsonl(const lb_tracked_run& run)
    : lines_(std::filesystem::path(run.directory) / "metrics.jsonl", run.first_step) {}

template <class Write>
void Jsonl::report_once(Write&& write) {
  try {
    write();
  } catch (const std::runtime_error& error) {
    if (!std::exchange(has_failed_, true)) {
      throw lb::Error(LB_UNAVAILABLE, error.what());
    }
  }
}

void Jsonl::scalars(int64_t step, lb::List<const char*> names, lb::List<double> values) {
  std::vector<std::pair<std::string, double>> pairs;
  for (size_t i = 0; i < names.size(); ++i) {
    pairs.emplace_back(names[i], values[i]);
  }
  report_once([&] { lines_.scalars(step, now(), pairs); });
}

void Jsonl::file(int64_t step,
                 const std::string& name,
                 const std::string& media_type,
                 const std::string& path,
                 const std::string& caption) {
  report_once([&] { lines_.file(step, now(), name, media_type, path, caption); });
}

}  // namespace basics
