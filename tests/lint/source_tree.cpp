// SPDX-License-Identifier: Apache-2.0
#include "source_tree.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>

#include <doctest/doctest.h>

namespace limbeck::lint {

namespace fs = std::filesystem;

fs::path root() { return LIMBECK_SOURCE_DIR; }

std::vector<fs::path> files_in(const std::string& folder,
                               const std::vector<std::string>& extensions) {
  std::vector<fs::path> files;
  const fs::path top = root() / folder;
  if (!fs::exists(top)) {
    return files;
  }
  for (const auto& entry : fs::recursive_directory_iterator(top)) {
    const std::string extension = entry.path().extension().string();
    const bool is_wanted =
        std::find(extensions.begin(), extensions.end(), extension) != extensions.end();
    if (entry.is_regular_file() && is_wanted) {
      files.push_back(fs::relative(entry.path(), root()));
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<fs::path> sources_in(const std::string& folder) {
  return files_in(folder, {".h", ".hpp", ".c", ".cpp", ".inc", ".def", ".cu", ".cuh"});
}

std::vector<std::string> lines_of(const fs::path& relative) {
  std::ifstream file(root() / relative);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
  }
  return lines;
}

std::string included(std::string_view line) {
  const auto hash = line.find_first_not_of(" \t");
  if (hash == std::string_view::npos || line[hash] != '#') {
    return "";
  }
  const auto word = line.find("include", hash);
  const auto open = line.find_first_of("<\"", hash);
  if (word == std::string_view::npos || open == std::string_view::npos || open < word) {
    return "";
  }
  const auto close = line.find_first_of(">\"", open + 1);
  return std::string(line.substr(open, close - open + 1));
}

std::string output_of(const std::string& command) {
  std::string output;
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> buffer;
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    output.append(buffer.data(), n);
  }
  REQUIRE_MESSAGE(pclose(pipe) == 0, command);
  return output;
}

std::string list(const std::vector<std::string>& faults) {
  std::string text;
  for (const auto& fault : faults) {
    text += "\n  " + fault;
  }
  return text;
}

}  // namespace limbeck::lint
