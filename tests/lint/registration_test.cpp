// SPDX-License-Identifier: Apache-2.0
// A test that is not compiled cannot fail. CMake lists what it compiled.
#include <algorithm>
#include <fstream>
#include <set>
#include <string>

#include <doctest/doctest.h>

#include "source_tree.hpp"

TEST_CASE("registration: every *_test source on disk is compiled into a test") {
  std::ifstream list(LIMBECK_BINARY_DIR "/tests/test_sources.txt");
  std::set<std::filesystem::path> compiled;
  for (std::string line; std::getline(list, line);) {
    compiled.insert(std::filesystem::path(line).lexically_normal());
  }

  std::vector<std::string> missing;
  for (const char* folder : {"tests", "plugins", "core", "host", "sdk", "bench"}) {
    for (const auto& file : limbeck::lint::sources_in(folder)) {
      const bool is_test = file.stem().string().ends_with("_test");
      if (is_test && compiled.count(limbeck::lint::root() / file) == 0) {
        missing.push_back(file.string());
      }
    }
  }

  CHECK(compiled.count(limbeck::lint::root() / "tests/lint/registration_test.cpp") == 1);
  CHECK_MESSAGE(missing.empty(), limbeck::lint::list(missing));
}
