// SPDX-License-Identifier: Apache-2.0
// Core and host treat every experiment alike: no family of models, no method and no role has its
// name in them.
#include <cctype>
#include <set>
#include <string>

#include <doctest/doctest.h>

#include "source_tree.hpp"

namespace {

const std::set<std::string>& names() {
  static const std::set<std::string> all = {
      "wan",     "hunyuan",     "hunyuanvideo", "ltx",     "cosmos", "mochi",  "dmd",
      "dmd2",    "sft",         "dfsft",        "tfsft",   "nft",    "grpo",   "anyflow",
      "fastgen", "selfforcing", "student",      "teacher", "critic", "causvid"};
  return all;
}

// Words, in lower case. '_' separates them; enumerators of the ABI are not ours to name.
std::set<std::string> words_of(const std::string& line) {
  std::set<std::string> words;
  std::string word;
  bool is_of_abi = false;
  for (size_t i = 0; i <= line.size(); ++i) {
    const char c = i < line.size() ? line[i] : ' ';
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      is_of_abi = is_of_abi || (word == "lb" && i + 1 < line.size() && line[i + 1] == '_' &&
                                std::isupper(static_cast<unsigned char>(c)) != 0);
      continue;
    }
    if (!word.empty() && !is_of_abi) {
      words.insert(word);
    }
    word.clear();
    is_of_abi = is_of_abi && c == '_';
  }
  return words;
}

std::vector<std::string> names_in(const std::string& line) {
  std::vector<std::string> found;
  for (const auto& word : words_of(line)) {
    if (names().count(word) != 0) {
      found.push_back(word);
    }
  }
  if (line.find("self_forcing") != std::string::npos) {
    found.push_back("self_forcing");
  }
  return found;
}

}  // namespace

TEST_CASE("vocabulary: core and host name no family, method or role") {
  std::vector<std::string> faults;
  for (const char* folder : {"core", "host"}) {
    for (const auto& file : limbeck::lint::sources_in(folder)) {
      const auto lines = limbeck::lint::lines_of(file);
      for (size_t i = 0; i < lines.size(); ++i) {
        for (const auto& name : names_in(lines[i])) {
          faults.push_back(file.string() + ":" + std::to_string(i + 1) + ": " + name);
        }
      }
    }
  }

  CHECK_MESSAGE(faults.empty(), limbeck::lint::list(faults));
}

TEST_CASE("vocabulary: the check sees whole words in names and comments only") {
  CHECK(names_in("// of the Student").size() == 1);
  CHECK(names_in("run_dmd2_step();").size() == 1);
  CHECK(names_in("want(criticism, swan);").empty());
  CHECK(names_in("case LB_ATTEND_TEACHER:").empty());
}
