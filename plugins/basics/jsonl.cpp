// SPDX-License-Identifier: Apache-2.0
#include "basics/jsonl.hpp"

#include <filesystem>
#include <utility>
#include <vector>

#include "basics/file_tracker.hpp"

namespace basics {

Jsonl::Jsonl(const lb_tracked_run& run) {
  or_later([&] {
    lines_.emplace(std::filesystem::path(run.directory) / "metrics.jsonl", run.first_step);
  });
}

void Jsonl::scalars(int64_t step, lb::List<const char*> names, lb::List<double> values) {
  std::vector<std::pair<std::string, double>> pairs;
  for (size_t i = 0; i < names.size(); ++i) {
    pairs.emplace_back(names[i], values[i]);
  }
  or_later([&] { lines_->scalars(step, wall_time(), pairs); });
}

void Jsonl::file(int64_t step,
                 const std::string& name,
                 const std::string& media_type,
                 const std::string& path,
                 const std::string& caption) {
  or_later([&] { lines_->file(step, wall_time(), name, media_type, path, caption); });
}

}  // namespace basics
