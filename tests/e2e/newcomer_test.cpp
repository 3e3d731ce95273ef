// SPDX-License-Identifier: Apache-2.0
// docs/plugin-guide.md as a newcomer follows it: in an empty folder, against an installed limbeck,
// every file written and every command run as it stands there.
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "program.hpp"

#include <doctest/doctest.h>

using namespace limbeck::testing;

namespace {

struct Block {
  std::string language;
  std::string path;  // of a file: what the line before it names at its end, "`x/y.c`:"
  std::string text;
};

// "..., in `log_cosh/log_cosh.cpp`:" -> "log_cosh/log_cosh.cpp"
std::string path_at_end(const std::string& line) {
  if (!line.ends_with("`:")) {
    return "";
  }
  const auto end = line.size() - 2;
  const auto begin = line.rfind('`', end - 1);
  return line.substr(begin + 1, end - begin - 1);
}

std::vector<Block> blocks_of(const std::string& markdown) {
  std::vector<Block> blocks;
  std::istringstream lines(markdown);
  std::string before;  // the last line that is not empty
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("```")) {
      before = line.empty() ? before : line;
      continue;
    }
    Block block{line.substr(3), path_at_end(before), ""};
    while (std::getline(lines, line) && line != "```") {
      block.text += line + "\n";
    }
    before.clear();
    blocks.push_back(std::move(block));
  }
  return blocks;
}

// An installation that was moved after it was made: nothing in it may know its place.
std::string moved_installation(const TempFolder& folder) {
  shell("cmake --install '" LIMBECK_BINARY_DIR "' --prefix '" + folder / "first" + "'");
  std::filesystem::rename(folder / "first", folder / "prefix");
  return folder / "prefix";
}

}  // namespace

TEST_CASE("newcomer: the plugin guide works as it is written") {
  const TempFolder folder;
  const auto prefix = moved_installation(folder);
  const auto work = folder / "work";
  std::filesystem::create_directory(work);
  const std::string before = "cd '" + work + "' && export PREFIX='" + prefix + "' PATH='" + prefix +
                             "/bin':\"$PATH\" CMAKE_GENERATOR=Ninja "
                             "OMP_NUM_THREADS=1 && set -e\n";

  std::string output;
  size_t n_files = 0;
  for (const auto& block : blocks_of(read_text(LIMBECK_SOURCE_DIR "/docs/plugin-guide.md"))) {
    if (block.language == "sh") {
      output += shell(before + block.text);
    } else if (!block.path.empty()) {
      write_text(std::filesystem::path(work) / block.path, block.text);
      ++n_files;
    }
  }

  CHECK(n_files == 4);
  for (const char* line : {"pass  waves (limbeck.dataset/1)", "pass  log_cosh (limbeck.loss/1)",
                           "pass  mae (limbeck.loss/1)", "first.toml is valid"}) {
    CHECK_MESSAGE(output.find(line) != std::string::npos, std::string(line) << "\n" << output);
  }
  CHECK(output.find("FAIL") == std::string::npos);
  CHECK(output.find("warning") == std::string::npos);
  const auto metrics = std::filesystem::path(work) / "runs/first/metrics.jsonl";
  const auto sum = metric(metrics, "loss");
  const auto first = metric(metrics, "loss/log_cosh");
  const auto second = metric(metrics, "loss/mae");
  CHECK(metric(metrics, "log_cosh/max_error").size() == 5);
  REQUIRE(sum.size() == 5);
  REQUIRE(first.size() == 5);
  REQUIRE(second.size() == 5);
  for (size_t i = 0; i < sum.size(); ++i) {
    CHECK(first[i] > 0);
    CHECK(second[i] > 0);
    CHECK(sum[i] == doctest::Approx(first[i] + 0.1 * second[i]).epsilon(1e-5));  // its weights
  }
}

TEST_CASE("newcomer: the commands of the README build a plugin against the build folder") {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "build");
  std::filesystem::create_directory_symlink(LIMBECK_BINARY_DIR, folder / "build/release");
  const std::string before =
      "cd '" + folder.path().string() + "' && export CMAKE_GENERATOR=Ninja && set -e\n";
  shell(before + "build/release/bin/limbeck plugin new huber --kind loss");

  std::string output;
  for (const auto& block : blocks_of(read_text(LIMBECK_SOURCE_DIR "/README.md"))) {
    if (block.text.starts_with("cmake -S huber")) {
      output += shell(before + block.text);
    }
  }

  CHECK_MESSAGE(output.find("pass  huber (limbeck.loss/1)") != std::string::npos, output);
  // The class that the README shows is the one that was written.
  const auto readme = read_text(LIMBECK_SOURCE_DIR "/README.md");
  const auto source = read_text(folder / "huber/huber.cpp");
  for (const char* part : {"class MyLoss : public lb::Loss {", "step.log(\"huber/max_error\"",
                           "LB_PLUGIN(lb::loss<MyLoss>(\"huber\", "}) {
    CHECK_MESSAGE(readme.find(part) != std::string::npos, part);
    CHECK_MESSAGE(source.find(part) != std::string::npos, part);
  }
}

TEST_CASE("newcomer: a run of nothing but templates, in C++ and in C") {
  for (const std::string language : {"cpp", "c"}) {
    CAPTURE(language);
    const TempFolder folder;
    std::string manifest = "plugins = [\"basics\"";
    for (const char* kind :
         {"network", "method", "prepare", "loss", "dataset", "callback", "tracker"}) {
      manifest += std::string(", \"") + LIMBECK_TEST_PLUGIN_DIR "/templates/template_" + kind +
                  "_" + language + ".so\"";
    }
    manifest += R"(]
[run]
threads = 1
[models.student]
type = "my_plugin"
config = { channels = 4 }
[method]
type = "my_plugin"
[[prepare]]
type = "my_plugin"
[[prepare]]
type = "flow_noise"
[training.data]
type = "my_plugin"
train_batch_size = 8
[training.optimizer]
learning_rate = 1e-2
[training.loop]
max_train_steps = 6
[training.tracker]
trackers = ["my_plugin", "jsonl"]
[callbacks.my_plugin]
limit = 100.0
)";
    // The method in C has no terms.
    manifest += language == "cpp" ? "[[losses]]\ntype = \"my_plugin\"\n" : "";
    write_text(folder / "x.toml", manifest);

    const auto outcome =
        run_limbeck({"train", folder / "x.toml", "--override-output-dir", folder / "out"});
    CHECK_MESSAGE(outcome.exit_code == 0, outcome.output);
    const auto losses = metric(folder / "out/metrics.jsonl", "loss");
    REQUIRE(losses.size() == 6);
    const auto csv = read_text(folder / "out/metrics.csv");
    CHECK(csv.find("6,loss,") != std::string::npos);
    CHECK(csv.find("my_plugin/highest_loss,") != std::string::npos);
    CHECK((csv.find("loss/my_plugin,") != std::string::npos) == (language == "cpp"));

    // The callback stops a run whose loss is above its limit.
    const auto stopped =
        run_limbeck({"train", folder / "x.toml", "--override-output-dir", folder / "stopped",
                     "--set", "callbacks.my_plugin.limit=1e-9"});
    CHECK_MESSAGE(stopped.exit_code == 0, stopped.output);
    CHECK(metric(folder / "stopped/metrics.jsonl", "loss").size() == 1);
  }
}

TEST_CASE("newcomer: every plugin that is shipped keeps the rules") {
  const auto outcome =
      run_limbeck({"plugin", "check", "basics", "parquet", "quickstart", "sft", "wan"});

  CHECK_MESSAGE(outcome.exit_code == 0, outcome.output);
}
