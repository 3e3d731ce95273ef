// SPDX-License-Identifier: Apache-2.0
// What tests/e2e/dcp_test.py calls: writes the sample checkpoint, and checks one that PyTorch
// wrote.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>

#include "../golden/dcp_sample.hpp"

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  try {
    if (command == "write" && argc == 4) {
      std::filesystem::create_directories(argv[2]);
      limbeck::testing::write_dcp_sample(argv[2], std::atoi(argv[3]));
      return 0;
    }
    if (command == "check" && argc == 3) {
      const auto differences = limbeck::testing::differences_from_dcp_sample(argv[2]);
      for (const auto& difference : differences) {
        std::fprintf(stderr, "%s\n", difference.c_str());
      }
      return differences.empty() ? 0 : 1;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  std::fprintf(stderr, "usage: %s write FOLDER RANKS | check FOLDER\n", argv[0]);
  return 64;
}
