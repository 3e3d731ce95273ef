// SPDX-License-Identifier: Apache-2.0
// Every manifest in fixtures/manifests/bad has a fault, and says at its end, in lines that begin
// with "#= ", the whole text of the error it must give.
#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/base/text.hpp"
#include "tests/unit/manifest_files.hpp"

namespace {

namespace fs = std::filesystem;
using limbeck::Error;
using limbeck::Fault;
using limbeck::test::kPlain;
using limbeck::test::ManifestFolder;

const fs::path kManifests = fs::path(LIMBECK_SOURCE_DIR) / "tests/fixtures/manifests";

std::vector<fs::path> bad_manifests() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(kManifests / "bad")) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string expected_message(const fs::path& file) {
  std::istringstream lines(limbeck::read_file(file));
  std::vector<std::string> message;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("#= ")) {
      message.push_back(line.substr(3));
    }
  }
  return limbeck::join(message, "\n");
}

std::string replace(std::string text, const std::string& part, const std::string& by) {
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + by.size())) {
    text.replace(at, part.size(), by);
  }
  return text;
}

std::string message_of(const fs::path& file) {
  ManifestFolder folder;
  try {
    folder.load_file(file);
  } catch (const Error& error) {
    CHECK(error.fault() == Fault::kManifest);
    const std::string text =
        ManifestFolder::without(error.message(), file.parent_path().string() + "/");
    return replace(text, kManifests.string(), "FOLDER");
  }
  return "no error";
}

}  // namespace

TEST_CASE("bad manifests: each gives the whole message that it says it gives") {
  const auto files = bad_manifests();
  CHECK(files.size() >= 75);
  for (const auto& file : files) {
    CAPTURE(file.string());
    CHECK_FALSE(expected_message(file).empty());
    CHECK(message_of(file) == expected_message(file));
  }
}

TEST_CASE("bad manifests: the comparison would notice another column") {
  const fs::path file = kManifests / "bad/unknown_key_near.toml";
  const std::string expected = expected_message(file);
  CHECK(message_of(file) != replace(expected, ":6:1:", ":6:2:"));
  CHECK(expected.find(":6:1:") != std::string::npos);
}

TEST_CASE("bad manifests: a file that is not there is named with the reason") {
  ManifestFolder folder;
  const auto missing = folder.path() / "none.toml";
  try {
    folder.load_file(missing);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.fault() == Fault::kManifest);
    CHECK(error.message() ==
          "manifest: cannot open " + missing.string() + ": No such file or directory");
    CHECK(error.hint() == "name a TOML file");
  }
}

TEST_CASE("bad manifests: a folder is not a manifest") {
  ManifestFolder folder;
  CHECK_THROWS_WITH_AS(folder.load_file(folder.path()), doctest::Contains("Is a directory"), Error);
}

TEST_CASE("bad manifests: an unpinned hash is checked on the file") {
  ManifestFolder folder;
  const std::string pin(64, 'a');
  const std::string text =
      replace(kPlain, "[\"good_study\"]", "[{ path = \"good_study\", sha256 = \"" + pin + "\" }]");

  CHECK(folder.fault(text).find(pin) != std::string::npos);
}

TEST_CASE("bad manifests: a value that is inherited by several roles is reported once") {
  ManifestFolder folder;
  const std::string text = kPlain +
                           "[models.critic]\ntype = \"toy_features\"\nconfig.width = 16\n" +
                           "[training.model]\nenable_gradient_checkpointing_type = \"ops\"\n";

  CHECK(folder.fault(text) ==
        "x.toml:16:38: training.model.enable_gradient_checkpointing_type: \"ops\" is not available "
        "in this version\n  hint: use \"none\" or \"full\"\n1 error");
}

TEST_CASE("bad manifests: an empty file misses everything") {
  ManifestFolder folder;
  CHECK(folder.fault("") ==
        "x.toml: missing key \"plugins\": a list of plugins\n"
        "  hint: every method, network and data set is in a plugin: plugins = [...]\n"
        "x.toml: missing key \"training.loop.max_train_steps\": an integer in [1, inf)\n"
        "  hint: Steps of the whole run.\n"
        "x.toml: no roles: expected a table [models.<role>]\n"
        "  hint: each network of a run has one\n"
        "3 errors");
}

TEST_CASE(
    "bad manifests: cut at any place, a good one gives an error or loads, and never crashes") {
  ManifestFolder folder;
  const std::string text = limbeck::read_file(kManifests / "good.toml");
  for (size_t size = 0; size < text.size(); size += 7) {
    try {
      folder.load(text.substr(0, size));
    } catch (const Error& error) {
      CHECK(error.fault() == Fault::kManifest);
    }
  }
}
