// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <doctest/doctest.h>

#include "source_tree.hpp"

namespace {

constexpr const char* kLine = "SPDX-License-Identifier: Apache-2.0";

bool begins_with_licence(const std::filesystem::path& file) {
  const auto lines = limbeck::lint::lines_of(file);
  // The second line where the first one names an interpreter.
  const size_t first = !lines.empty() && lines[0].starts_with("#!") ? 1 : 0;
  return lines.size() > first && lines[first].find(kLine) != std::string::npos;
}

}  // namespace

TEST_CASE("licence: every source begins with the SPDX line") {
  std::vector<std::string> faults;
  for (const char* folder :
       {"core", "host", "sdk", "plugins", "tests", "bench", "cmake", "scripts"}) {
    for (const auto& file : limbeck::lint::files_in(
             folder,
             {".h", ".hpp", ".c", ".cpp", ".cu", ".cuh", ".cmake", ".txt", ".py", ".sh", ".in"})) {
      const bool is_code = file.extension() != ".txt" || file.filename() == "CMakeLists.txt";
      if (is_code && !begins_with_licence(file)) {
        faults.push_back(file.string());
      }
    }
  }

  CHECK_MESSAGE(faults.empty(), limbeck::lint::list(faults));
}
