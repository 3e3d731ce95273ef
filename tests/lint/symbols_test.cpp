// SPDX-License-Identifier: Apache-2.0
// What the built libraries export. Needs them built: with others missing, it checks those there.
#include <sstream>
#include <string>

#include <doctest/doctest.h>

#include "source_tree.hpp"

namespace {

namespace fs = std::filesystem;

std::vector<std::string> exports_of(const fs::path& library) {
  std::istringstream lines(
      limbeck::lint::output_of("nm -D --defined-only '" + library.string() + "'"));
  std::vector<std::string> names;
  for (std::string address, type, name; lines >> address >> type >> name;) {
    names.push_back(name);
  }
  return names;
}

}  // namespace

TEST_CASE("symbols: a plugin exports its entry function and nothing else") {
  const fs::path folder = LIMBECK_BINARY_DIR "/lib/limbeck/plugins";
  std::vector<std::string> faults;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const auto names = exports_of(entry.path());
    if (names != std::vector<std::string>{"limbeck_plugin_v1"}) {
      faults.push_back(entry.path().filename().string() + ":" + limbeck::lint::list(names));
    }
  }

  CHECK_MESSAGE(faults.empty(), limbeck::lint::list(faults));
}

TEST_CASE("symbols: the check sees what a library exports") {
  const auto names = exports_of(LIMBECK_TEST_PLUGIN_DIR "/good_callback.so");

  CHECK(names == std::vector<std::string>{"limbeck_plugin_v1"});
  CHECK(exports_of(LIMBECK_TEST_PLUGIN_DIR "/bad_no_symbol.so").empty());
}
