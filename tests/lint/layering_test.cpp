// SPDX-License-Identifier: Apache-2.0
// Who may include whom. Folders of core have levels; an include points to a lower one.
#include <algorithm>
#include <map>
#include <set>
#include <string>

#include <doctest/doctest.h>

#include "source_tree.hpp"

namespace {

using limbeck::lint::included;

const std::map<std::string, int>& levels() {
  static const std::map<std::string, int> all = {
      {"base", 0},   {"weights", 1},  {"dcp", 1},      {"dist", 1},  {"manifest", 2},
      {"plugin", 3}, {"tensor", 4},   {"data", 5},     {"track", 5}, {"checkpoint", 5},
      {"ops", 5},    {"transfer", 6}, {"role", 6},     {"cuda", 6},  {"exec", 7},
      {"optim", 7},  {"step", 8},     {"callback", 8}, {"train", 9},
  };
  return all;
}

// Includes that point upwards, each with its reason.
const std::set<std::pair<std::string, std::string>>& exceptions() {
  static const std::set<std::pair<std::string, std::string>> all = {
      // A manifest names plugins and is checked against the tables they offer; the registry in
      // turn reports to the manifest's diagnostics.
      {"manifest", "core/plugin/registry.hpp"},
  };
  return all;
}

// "" if `include` is fine in a file of core/<folder>.
std::string fault_in_core(const std::string& folder, const std::string& include) {
  if (include.starts_with("\"../") || include.find("/../") != std::string::npos) {
    return "goes up";
  }
  if (include.starts_with("\"host/") || include.starts_with("\"plugins/")) {
    return "core knows neither the host nor a plugin";
  }
  if (include.starts_with("<limbeck/") && include.ends_with(".hpp>")) {
    return "core implements the other half of the ABI and does not use the SDK's C++";
  }
  if (!include.starts_with("\"core/")) {
    return "";
  }
  const std::string path = include.substr(1, include.size() - 2);
  const std::string other = path.substr(5, path.find('/', 5) - 5);
  if (other == folder || exceptions().count({folder, path}) != 0) {
    return "";
  }
  const auto& all = levels();
  if (all.count(other) == 0) {
    return "there is no such folder in the list of levels";
  }
  return all.at(other) < all.at(folder) ? "" : "is not on a lower level";
}

std::string fault_in_host(const std::string& include) {
  for (const char* allowed :
       {"\"host/", "\"core/base/", "\"core/manifest/", "\"core/plugin/", "\"core/weights/",
        "\"core/dcp/", "\"core/transfer/", "\"core/train/job.hpp\"", "\"media/"}) {
    if (include.starts_with(allowed)) {
      return "";
    }
  }
  if (include.starts_with("\"") || include.starts_with("<ATen") || include.starts_with("<torch") ||
      include.starts_with("<c10")) {
    return "the host sees the folders of liblimbeck_base.so, train/job.hpp and media only, and no "
           "libtorch";
  }
  return "";
}

std::string fault_in_plugin(const std::string& folder, const std::string& include) {
  if (include.starts_with("\"plugins/" + folder + "/")) {
    return "";
  }
  for (const char* foreign : {"\"core/", "\"host/", "\"plugins/", "\"../", "<core/", "<host/"}) {
    if (include.starts_with(foreign)) {
      return "a plugin sees <limbeck/...> and its own folder";
    }
  }
  return "";
}

template <class Check>
std::vector<std::string> faults_in(const std::string& top, const Check& fault_of) {
  std::vector<std::string> faults;
  for (const auto& file : limbeck::lint::sources_in(top)) {
    // core/tensor/handle.hpp -> tensor
    const auto second = *std::next(file.begin());
    for (const auto& line : limbeck::lint::lines_of(file)) {
      const std::string include = included(line);
      const std::string fault = include.empty() ? "" : fault_of(second.string(), include);
      if (!fault.empty()) {
        faults.push_back(file.string() + " includes " + include + ": " + fault);
      }
    }
  }
  return faults;
}

}  // namespace

TEST_CASE("layering: a folder of core includes folders below it") {
  const auto faults = faults_in("core", fault_in_core);

  CHECK_MESSAGE(faults.empty(), limbeck::lint::list(faults));
}

TEST_CASE("layering: the host sees no libtorch and only the torch-free half of core") {
  const auto faults = faults_in("host", [](const std::string&, const std::string& include) {
    return fault_in_host(include);
  });

  CHECK_MESSAGE(faults.empty(), limbeck::lint::list(faults));
}

TEST_CASE("layering: a plugin includes the SDK and its own folder") {
  const auto faults = faults_in("plugins", fault_in_plugin);

  CHECK_MESSAGE(faults.empty(), limbeck::lint::list(faults));
}

TEST_CASE("layering: the check sees an include that points upwards") {
  CHECK_FALSE(fault_in_core("tensor", "\"core/role/role.hpp\"").empty());
  CHECK_FALSE(fault_in_core("base", "\"core/manifest/config.hpp\"").empty());
  CHECK_FALSE(fault_in_core("exec", "\"../role/role.hpp\"").empty());
  CHECK_FALSE(fault_in_core("step", "<limbeck/tensor.hpp>").empty());
  CHECK_FALSE(fault_in_host("\"core/role/role.hpp\"").empty());
  CHECK_FALSE(fault_in_plugin("basics", "\"core/base/text.hpp\"").empty());
  CHECK(fault_in_core("role", "\"core/tensor/handle.hpp\"").empty());
}
