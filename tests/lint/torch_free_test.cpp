// SPDX-License-Identifier: Apache-2.0
// What is said to know no libtorch does not see its headers: neither in an include line nor on the
// include path of its compiler.
#include <fstream>
#include <sstream>
#include <string>

#include <doctest/doctest.h>

#include "source_tree.hpp"

namespace {

bool is_torch_header(const std::string& include) {
  for (const char* folder : {"<ATen/", "<torch/", "<c10/", "\"ATen/", "\"torch/", "\"c10/"}) {
    if (include.starts_with(folder)) {
      return true;
    }
  }
  return include.find("core/tensor/handle.hpp") != std::string::npos;
}

// Folders of plugins whose CMakeLists.txt says NATIVE share libtorch.
bool is_native(const std::string& folder) {
  for (const auto& line : limbeck::lint::lines_of("plugins/" + folder + "/CMakeLists.txt")) {
    if (line.find("NATIVE") != std::string::npos) {
      return true;
    }
  }
  return false;
}

std::vector<std::string> torch_free_folders() {
  std::vector<std::string> folders = {"core/base",   "core/dcp",      "core/manifest",
                                      "core/plugin", "core/transfer", "core/weights",
                                      "host"};
  for (const auto& list : limbeck::lint::files_in("plugins", {".txt"})) {
    const std::string name = std::next(list.begin())->string();
    if (list.filename() == "CMakeLists.txt" && list != "plugins/CMakeLists.txt" &&
        !is_native(name)) {
      folders.push_back("plugins/" + name);
    }
  }
  return folders;
}

// It reads the version macros of libtorch, and links nothing.
bool is_excepted(const std::string& file) { return file == "core/plugin/torch_tag.cpp"; }

// Every compiled file and its command, one after the other.
std::vector<std::pair<std::string, std::string>> commands() {
  std::ifstream file(LIMBECK_BINARY_DIR "/compile_commands.json");
  std::vector<std::pair<std::string, std::string>> all;
  std::string command;
  for (std::string line; std::getline(file, line);) {
    if (line.find("\"command\":") != std::string::npos) {
      command = line;
    } else if (const auto at = line.find("\"file\": \""); at != std::string::npos) {
      const auto begin = at + 9;
      all.emplace_back(line.substr(begin, line.find('"', begin) - begin), command);
    }
  }
  return all;
}

}  // namespace

TEST_CASE("torch-free: no header of libtorch is included where none is promised") {
  std::vector<std::string> faults;
  for (const auto& folder : torch_free_folders()) {
    for (const auto& file : limbeck::lint::sources_in(folder)) {
      for (const auto& line : limbeck::lint::lines_of(file)) {
        if (is_torch_header(limbeck::lint::included(line)) && !is_excepted(file.string())) {
          faults.push_back(file.string() + ": " + line);
        }
      }
    }
  }

  CHECK_MESSAGE(faults.empty(), limbeck::lint::list(faults));
}

TEST_CASE("torch-free: the compiler could not find libtorch's headers there either") {
  // By where the object goes: a compiled file can be several sources put together, and tests
  // compile some of the same sources with libtorch beside.
  std::vector<std::string> objects = {" -o core/CMakeFiles/limbeck_base.dir/"};
  for (const auto& folder : torch_free_folders()) {
    objects.push_back(" -o " + folder + "/");
  }
  std::vector<std::string> faults;
  size_t n_checked = 0;
  for (const auto& [path, command] : commands()) {
    const std::string file = std::filesystem::relative(path, limbeck::lint::root()).string();
    for (const auto& object : objects) {
      if (command.find(object) == std::string::npos || is_excepted(file)) {
        continue;
      }
      ++n_checked;
      if (command.find("torch/include") != std::string::npos) {
        faults.push_back(file);
      }
    }
  }

  CHECK(n_checked > 10);
  CHECK_MESSAGE(faults.empty(), limbeck::lint::list(faults));
}
