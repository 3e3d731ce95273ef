// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <limbeck/tracker.hpp>

#include "basics/json_lines.hpp"

namespace basics {

// Metrics as one JSON object a line, in metrics.jsonl of the tracker's folder; every line reaches
// the file at once. A value that is not finite is null. A resumed run continues the file after its
// checkpoint. The format: json_lines.hpp.
//
// The first line that cannot be written is reported; later ones are tried, and dropped silently.
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
  template <class Write>
  void report_once(Write&& write);

  JsonLines lines_;
  bool has_failed_ = false;
};

}  // namespace basics
