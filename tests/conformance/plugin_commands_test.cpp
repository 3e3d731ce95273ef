// SPDX-License-Identifier: Apache-2.0
// `limbeck plugin info`, `check` and `new` from outside.
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/base/files.hpp"

namespace {

namespace fs = std::filesystem;

struct Result {
  int code;
  std::string text;  // standard output and standard error
};

Result run(const std::string& arguments, const std::string& before = "") {
  const std::string command = before + LIMBECK_BINARY_DIR "/bin/limbeck " + arguments + " 2>&1";
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

std::string fixture(const std::string& name) {
  return std::string(LIMBECK_TEST_PLUGIN_DIR "/") + name + ".so";
}

bool has_line(const std::string& text, const std::string& wanted) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line == wanted) {
      return true;
    }
  }
  return false;
}

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) {
    ++n;
  }
  return n;
}

}  // namespace

TEST_CASE("plugin info: file, versions, components, and options of every type") {
  const auto result = run("plugin info " + fixture("good_study"));

  CHECK(result.code == 0);
  for (
      const char* line : {
          "good_study 1.0.0",
          "  id        org.limbeck.test.good_study",
          "  licence   Apache-2.0",
          "  libtorch  not shared, any version will do",
          "  exports   limbeck_plugin_v1",
          "pair: limbeck.method/1",
          "  A method of two.",
          "  provides  limbeck.terms/1",
          ("  roles     student (trained, limbeck.video-dit/1), teacher (limbeck.video-dit/1), critic "
           "(trained, optional, limbeck.video-dit/1 limbeck.features/1), average (shadow, optional)"),
      }) {
    CHECK_MESSAGE(has_line(result.text, line), std::string(line) << "\n" << result.text);
  }
  for (
      const char* part :
      {"gamma = 0.5", "a number in (0, 1]. Strength.", "steps = [1000, 500]",
       "a list of integers in [1, 1000]. Timesteps.", "\"fast\" or \"exact\". Which way.",
       "bell.width = 1.0", "a number in (0, inf). Its width.", "weights.<key>",
       "a text, secret. A key.", "a number, deprecated. Use gamma instead.",
       "a number, another name of models.critic.optimizer.learning_rate. Learning rate of the critic.",
       "an integer in [8, inf), required. Width of a token.", "sha256    "}) {
    CHECK_MESSAGE(result.text.find(part) != std::string::npos, std::string(part) << "\n"
                                                                                 << result.text);
  }
}

TEST_CASE("plugin info: what is not there has exit code 3 and the nearest name") {
  const auto result =
      run("plugin info good_stdy", "LIMBECK_PLUGIN_PATH=" LIMBECK_TEST_PLUGIN_DIR " ");

  CHECK(result.code == 3);
  CHECK(result.text.find("did you mean 'good_study'?") != std::string::npos);
  CHECK(run("plugin info").code == 64);
}

TEST_CASE("plugin check: every template passes") {
  std::string paths;
  size_t n_templates = 0;
  for (const auto& entry : fs::directory_iterator(LIMBECK_TEST_PLUGIN_DIR "/templates")) {
    paths += " " + entry.path().string();
    ++n_templates;
  }
  const auto result = run("plugin check" + paths);

  CHECK_MESSAGE(result.code == 0, result.text);
  CHECK(n_templates == 14);
  CHECK(count(result.text, "pass  my_plugin (limbeck.") == n_templates);
  CHECK_MESSAGE(count(result.text, "\nnote") == 0, result.text);
}

TEST_CASE("plugin check: rules that are broken in use are found, also by a crash") {
  const auto result = run("plugin check " + fixture("rule_breaker"));

  CHECK(result.code == 3);
  for (
      const char* line :
      {"FAIL  forgetful (limbeck.loss/1): save() wrote 'Bad Name', which is no name [a-z0-9_.]+ or "
       "is there twice",
       "FAIL  forgetful (limbeck.loss/1): its state differs in 'calls' after save(), load() and "
       "save()",
       "FAIL  crashing (limbeck.loss/1): it crashed in destroy(): signal 6 (Aborted); it wrote: about "
       "to crash",
       "FAIL  fickle (limbeck.method/1): plan() gives other rounds when it is asked for the same step "
       "again",
       "FAIL  careless (limbeck.model/1): create() succeeds although its declaration 1 (param 0 weight "
       "[4]) was refused",
       "limbeck: 5 checks failed"}) {
    CHECK_MESSAGE(has_line(result.text, line), std::string(line) << "\n" << result.text);
  }
}

TEST_CASE("plugin check: faults of start and of libtorch") {
  const auto crash = run("plugin check " + fixture("bad_crash_init"));
  CHECK(crash.code == 3);
  CHECK(crash.text.find("it crashed in init() of its plugin: signal 6") != std::string::npos);

  const auto thrown = run("plugin check " + fixture("bad_throw_init"));
  CHECK(thrown.code == 3);
  CHECK(thrown.text.find("an exception left the plugin, which the ABI forbids") !=
        std::string::npos);

  const auto torch =
      run("plugin list " + fixture("bad_torch_part") + " " + fixture("bad_torch_second"));
  CHECK(torch.code == 3);
  CHECK(torch.text.find("bad_torch_part.so: it needs libtorch_cuda.so, which this limbeck does not "
                        "load\n") != std::string::npos);
  CHECK(torch.text.find("bad_torch_second.so: it brought a second libtorch into the process: ") !=
        std::string::npos);
}

TEST_CASE("plugin check: what a plugin leaves behind does not disturb the end of the program") {
  CHECK(run("plugin list " + fixture("good_restless")).code == 0);
  const auto result = run("plugin check " + fixture("good_restless"));
  CHECK_MESSAGE(result.code == 0, result.text);
}

TEST_CASE("plugin new: writes a folder and never over another") {
  std::string pattern = (fs::temp_directory_path() / "limbeck-XXXXXX").string();
  const fs::path folder = mkdtemp(pattern.data());
  const std::string at = " --output-dir " + (folder / "x").string();

  for (const char* language : {"c", "c++"}) {
    for (const char* kind :
         {"loss", "prepare", "method", "callback", "tracker", "dataset", "network"}) {
      const auto name = std::string(kind) + "_" + (language == std::string("c") ? "c" : "cpp");
      const auto result = run("plugin new " + name + " --kind " + kind + " --lang " + language +
                              " --output-dir " + (folder / name).string());
      CHECK_MESSAGE(result.code == 0, result.text);
      const auto source = limbeck::read_file(
          folder / name / (name + (language == std::string("c") ? ".c" : ".cpp")));
      const auto cmake = limbeck::read_file(folder / name / "CMakeLists.txt");
      CHECK(source.find("\"" + name + "\"") != std::string::npos);
      CHECK(source.find("my_plugin") == std::string::npos);
      CHECK(cmake.find("ID org.example." + name) != std::string::npos);
      CHECK(cmake.find(name + (language == std::string("c") ? ".c)" : ".cpp)")) !=
            std::string::npos);
    }
  }

  CHECK(run("plugin new x --kind loss" + at).code == 0);
  const auto again = run("plugin new x --kind tracker" + at);
  CHECK(again.code == 64);
  CHECK(again.text.find("x/CMakeLists.txt exists already\n") != std::string::npos);
  CHECK(run("plugin new Bad-Name --kind loss").code == 64);
  CHECK(run("plugin new x").text.find("--kind is missing") != std::string::npos);
  CHECK(run("plugin new x --kind los").code == 64);
  CHECK(run("plugin new x --kind loss --lang rust").code == 64);
  CHECK(run("plugin new x y --kind loss").code == 64);
  fs::remove_all(folder);
}
