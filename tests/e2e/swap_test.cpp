// SPDX-License-Identifier: Apache-2.0
// Somebody else's method, loss and model family, built against an installed limbeck, are put into a
// run by editing the manifest, and nothing else.
#include <cstdlib>
#include <filesystem>
#include <string>

#include "program.hpp"

#include <doctest/doctest.h>

using namespace limbeck::testing;

namespace {

// A native plugin shares C++ objects with the host and must be built with its sanitizer.
std::string sanitized() {
  const std::string kind = LIMBECK_SANITIZE;
  return kind.empty() ? "" : " -DCMAKE_CXX_FLAGS='-fsanitize=" + kind + " -fno-sanitize=vptr'";
}

// The folder of the plugins, built once, and the prefix they were built against.
struct Outside {
  Outside() {
    shell("cmake --install '" LIMBECK_BINARY_DIR "' --prefix '" + folder / "prefix" + "'");
    shell("cmake -S '" LIMBECK_SOURCE_DIR "/tests/outside' -B '" + folder / "build" +
          "' -G Ninja -DCMAKE_PREFIX_PATH='" + folder / "prefix" +
          "' -DLIMBECK_TORCH_DIR='" LIMBECK_TORCH_DIR "'" + sanitized());
    shell("cmake --build '" + folder / "build" + "'");
  }
  TempFolder folder;
};

const Outside& outside() {
  static const Outside built;
  return built;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

// Losses of four steps of the tiny manifest after `edit`.
std::vector<double> losses(const std::string& manifest) {
  const TempFolder folder;
  write_text(folder / "x.toml", manifest);
  const auto outcome =
      run_limbeck({"train", folder / "x.toml", "--override-output-dir", folder / "out", "--set",
                   "training.data.data_path=\"" + clips().string() + "\""});
  REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.output);
  return metric(folder / "out/metrics.jsonl", "loss");
}

const std::string kTiny = read_text(LIMBECK_SOURCE_DIR "/tests/e2e/tiny_sft.toml");

std::string with_outside_method() {
  auto text = replaced(kTiny, "\"sft\"", "\"" + outside().folder / "build/clean_flow.so" + "\"");
  text = replaced(text, "type = \"sft\"", "type = \"clean_flow\"");
  return replaced(text, "[[losses]]\ntype = \"velocity_mse\"\n", "");
}

}  // namespace

TEST_CASE("swap: a method in plain C from outside the tree") {
  const auto with_c = losses(with_outside_method());
  const auto shipped = losses(kTiny);

  REQUIRE(with_c.size() == 4);
  for (size_t i = 0; i < 4; ++i) {
    CHECK(with_c[i] > 0);
    CHECK(with_c[i] < shipped[i]);  // it weighs errors by sigma^2 < 1
  }
}

TEST_CASE("swap: a loss in plain C from outside the tree that asks a teacher") {
  const auto text =
      replaced(kTiny, "\"quickstart\"]",
               "\"quickstart\", \"" + outside().folder / "build/teacher_mse.so" + "\"]");
  const auto config_begin = text.find("[models.student.config]");
  const auto config_end = text.find("[models.student.ema]");
  // A fresh network as teacher: its last layer is zero, so its velocity is zero.
  const auto teacher =
      "[models.teacher]\ntype = \"wan\"\n" +
      replaced(text.substr(config_begin, config_end - config_begin), "student", "teacher");
  const auto both = replaced(text, "[method]", teacher + "[method]");
  const auto with_teacher = losses(replaced(both, "velocity_mse", "teacher_mse"));

  REQUIRE(with_teacher.size() == 4);
  CHECK(with_teacher[0] == 0);  // so is the student's
  const auto on_data =
      replaced(both, "[[losses]]\n", "[[losses]]\ntype = \"teacher_mse\"\n[[losses]]\n");
  const auto mixed = losses(on_data);
  const auto plain = losses(kTiny);
  CHECK(mixed[0] == plain[0]);
  CHECK(mixed[3] > plain[3]);  // the teacher holds it back
}

TEST_CASE("swap: a model family that shares libtorch from outside the tree") {
  auto text = replaced(kTiny, "\"wan\"", "\"" + outside().folder / "build/pointwise.so" + "\"");
  text = replaced(text, "type = \"wan\"", "type = \"pointwise\"");
  const auto begin = text.find("in_channels");
  const auto end = text.find("[models.student.ema]");
  text.replace(begin, end - begin, "channels = 4\n");

  CHECK(losses(text).size() == 4);
}

TEST_CASE("swap: the installed program runs by itself") {
  const auto program = outside().folder / "prefix/bin/limbeck";
  const auto list = shell("'" + program + "' plugin list");
  for (const char* name : {"wan", "sft", "velocity_mse", "parquet", "digit_clips"}) {
    CAPTURE(name);
    CHECK(list.find(name) != std::string::npos);
  }
}
