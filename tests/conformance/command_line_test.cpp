// SPDX-License-Identifier: Apache-2.0
// The executable from outside: what it prints where, and its exit codes.
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

#include <doctest/doctest.h>

namespace {

struct Result {
  int code;
  std::string text;  // standard output and standard error
};

Result run_program(const std::string& arguments) {
  const std::string command = std::string(LIMBECK_BINARY_DIR "/bin/limbeck ") + arguments + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  Result result{};
  std::array<char, 4096> buffer;
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    result.text.append(buffer.data(), n);
  }
  result.code = WEXITSTATUS(pclose(pipe));
  return result;
}

}  // namespace

TEST_CASE("command line: help and version succeed") {
  CHECK(run_program("--help").code == 0);
  CHECK(run_program("").text.find("Usage: limbeck COMMAND") != std::string::npos);
  const auto version = run_program("--version");
  CHECK(version.code == 0);
  CHECK(version.text.starts_with("limbeck 0."));
}

TEST_CASE("command line: a usage error has exit code 64 and the nearest command") {
  const auto result = run_program("trian x.toml");

  CHECK(result.code == 64);
  CHECK(result.text == "limbeck: unknown command 'trian'\n  hint: did you mean 'train'?\n");
}

TEST_CASE("command line: the executable does not link libtorch") {
  FILE* pipe = popen("readelf -d " LIMBECK_BINARY_DIR "/bin/limbeck " LIMBECK_BINARY_DIR
                     "/lib/liblimbeck_base.so",
                     "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 16384> buffer{};
  const size_t n = std::fread(buffer.data(), 1, buffer.size() - 1, pipe);
  REQUIRE(pclose(pipe) == 0);
  const std::string text(buffer.data(), n);

  CHECK(text.find("liblimbeck_base.so") != std::string::npos);
  CHECK(text.find("libtorch") == std::string::npos);
  CHECK(text.find("libc10") == std::string::npos);
}

TEST_CASE("command line: plugin list shows what a plugin offers") {
  const auto result = run_program("plugin list " LIMBECK_TEST_PLUGIN_DIR "/good_callback.so");

  CHECK(result.code == 0);
  CHECK(result.text ==
        "KIND                NAME           PLUGIN         VERSION  SUMMARY\n"
        "limbeck.callback/1  good_callback  good_callback  1.0.0    A callback that does "
        "nothing.\n");
}

TEST_CASE("command line: plugin list says what it could not load, with exit code 3") {
  const auto result = run_program("plugin list " LIMBECK_TEST_PLUGIN_DIR
                                  "/good_callback.so " LIMBECK_TEST_PLUGIN_DIR "/bad_minor.so");

  CHECK(result.code == 3);
  CHECK(result.text.find("good_callback  1.0.0") != std::string::npos);
  CHECK(result.text.find("bad_minor.so: it needs ABI 1.9 or later") != std::string::npos);
}

TEST_CASE("command line: a manifest that is not there has an exit code of its own") {
  const auto result = run_program("train /no/such/manifest.toml");

  CHECK((result.code == 2 || result.code == 4));
  CHECK(result.text.find("/no/such/manifest.toml") != std::string::npos);
}
