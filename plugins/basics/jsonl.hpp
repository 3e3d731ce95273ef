// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include <limbeck/tracker.hpp>

#include "basics/json_lines.hpp"

namespace basics {

// Metrics as one JSON object a line, in metrics.jsonl of the run's folder; every line reaches the
// file at once. A resumed run continues the file after its checkpoint. The format: json_lines.hpp.
class Jsonl final : public lb::Tracker {
 public:
  explicit Jsonl(const lb_tracked_run& run);

  void scalars(int64_t step, lb::List<const char*> names, lb::List<double> values) override;
  void file(int64_t step,
            const std::string& name,
            const std::string& media_type,
            const std::string& path,
            const std::string& caption) override;

 private:
  std::optional<JsonLines> lines_;  // never empty
};

}  // namespace basics
