// SPDX-License-Identifier: Apache-2.0
// What a manifest says is used: every member of the structs of core/manifest/manifest.hpp is read
// by a source outside core/manifest.
#include <regex>
#include <set>
#include <string>

#include <doctest/doctest.h>

#include "source_tree.hpp"

using namespace limbeck::lint;

namespace {

// The members that are declared in a header, a line each.
std::set<std::string> members_of(const std::string& header) {
  static const std::regex kMember("^  [A-Za-z_:][A-Za-z_:<>, 0-9]* ([a-z_0-9]+)( = [^;(]*)?;.*");
  std::set<std::string> names;
  for (const auto& line : lines_of(header)) {
    std::smatch found;
    if (std::regex_match(line, found, kMember)) {
      names.insert(found[1]);
    }
  }
  return names;
}

std::set<std::string> words_read_outside() {
  static const std::regex kRead("(\\.|->)([a-z_0-9]+)");
  std::set<std::string> words;
  for (const std::string folder : {"core", "host"}) {
    for (const auto& file : sources_in(folder)) {
      if (file.string().starts_with("core/manifest/")) {
        continue;
      }
      for (const auto& line : lines_of(file)) {
        for (std::sregex_iterator at(line.begin(), line.end(), kRead), end; at != end; ++at) {
          words.insert((*at)[2]);
        }
      }
    }
  }
  return words;
}

}  // namespace

TEST_CASE("manifest: what it holds is read by the rest of the program") {
  const auto members = members_of("core/manifest/manifest.hpp");
  CHECK(members.size() > 60);
  CHECK(members.count("min_lr_ratio") == 1);
  const auto read = words_read_outside();
  for (const auto& member : members) {
    CHECK_MESSAGE(read.count(member) == 1, member << " of core/manifest/manifest.hpp is not read");
  }
}
