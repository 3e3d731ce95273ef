// SPDX-License-Identifier: Apache-2.0
// Running the real program from a test.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace limbeck::testing {

struct Outcome {
  int exit_code = 0;   // 128 + signal if it was killed by one
  std::string output;  // standard output and error together
  double seconds = 0;
};

// Runs the built limbeck with these arguments in the source folder, one thread, and waits.
Outcome run_limbeck(const std::vector<std::string>& arguments);
// Starts it, sends it `signal` once its output holds `text`, and waits.
Outcome signal_limbeck(const std::vector<std::string>& arguments,
                       const std::string& text,
                       int signal);

// Starts it, and kills it with SIGKILL after so many seconds unless it ends before.
Outcome kill_limbeck(const std::vector<std::string>& arguments, double seconds);

// Runs a command with the shell and returns what it wrote. Throws with that unless it succeeds.
std::string shell(const std::string& command);

// A folder of its own for a test, empty, removed at the end.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

std::string read_text(const std::filesystem::path& path);
void write_text(const std::filesystem::path& path, const std::string& text);

// The series of one metric in a metrics.jsonl, by step.
std::vector<double> metric(const std::filesystem::path& jsonl, const std::string& name);

// A Parquet set of the quickstart's clips, made by the program once per test executable.
const std::filesystem::path& clips();

}  // namespace limbeck::testing
