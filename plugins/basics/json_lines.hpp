// SPDX-License-Identifier: Apache-2.0
// A file of metrics, one JSON object a line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "basics/append_file.hpp"

namespace basics {

// `text` as a JSON string with its quotes. Bytes that are not UTF-8 pass unchanged.
std::string json_string(std::string_view text);
// The shortest JSON number that reads back to `value`. JSON has none for what is not finite: these
// are the strings "NaN", "Infinity" and "-Infinity", which Python's float() reads.
std::string json_number(double value);

// Appends lines to a file, each as one record (append_file.hpp). Functions throw std::runtime_error
// with path and reason. One thread.
class JsonLines {
 public:
  // Opens `path` for a run whose next step is `first_step`. A run from step 1 begins an empty
  // file; a resumed one keeps the lines of earlier steps and drops all others, a torn last line
  // included.
  JsonLines(const std::filesystem::path& path, int64_t first_step);

  // {"step": step, "time": seconds since 1970, "<name>": value, ...}. A metric called "step" or
  // "time" is written as "metric.step", "metric.time".
  void scalars(int64_t step,
               double time,
               const std::vector<std::pair<std::string, double>>& values);
  // {"step": step, "time": ..., "file": path, "name": ..., "media_type": ..., "caption": ...}
  void file(int64_t step,
            double time,
            const std::string& name,
            const std::string& media_type,
            const std::string& path,
            const std::string& caption);

 private:
  AppendFile file_;
};

// The step of a line that scalars() or file() wrote; -1 if it is not a complete one.
int64_t step_of_line(std::string_view line);

}  // namespace basics
