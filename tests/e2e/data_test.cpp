// SPDX-License-Identifier: Apache-2.0
// Data sets through the real program: mixing, reading threads, samples that cannot be read.
#include <filesystem>
#include <string>
#include <vector>

#include "program.hpp"

#include <doctest/doctest.h>

namespace fs = std::filesystem;
using namespace limbeck::testing;

namespace {

bool has_text(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

Outcome train_on(const std::string& data_path,
                 const std::vector<std::string>& settings,
                 const TempFolder& folder) {
  std::vector<std::string> arguments = {"train",
                                        "tests/e2e/tiny_sft.toml",
                                        "--override-output-dir",
                                        folder / "out",
                                        "--set",
                                        "training.data.data_path=\"" + data_path + "\""};
  for (const auto& setting : settings) {
    arguments.insert(arguments.end(), {"--set", "training.data." + setting});
  }
  return run_limbeck(arguments);
}

std::vector<double> losses_of(const std::string& data_path,
                              const std::vector<std::string>& settings) {
  const TempFolder folder;
  const auto outcome = train_on(data_path, settings, folder);
  REQUIRE_MESSAGE(outcome.exit_code == 0, outcome.output);
  return metric(folder / "out/metrics.jsonl", "loss");
}

// A copy of the clips whose first row group says that its latents are of an unknown type.
void copy_damaged(const fs::path& to) {
  fs::copy(clips(), to, fs::copy_options::recursive);
  const auto file = to / "worker_0" / "data_chunk_0.parquet";
  auto bytes = read_text(file);
  const auto at = bytes.find("float32");
  REQUIRE(at != std::string::npos);
  bytes[at] = 'x';
  write_text(file, bytes);
}

}  // namespace

TEST_CASE("data: reading threads, and how samples are mixed and ordered") {
  const auto path = clips().string();
  const auto plain = losses_of(path, {});

  CHECK(losses_of(path, {"dataloader_num_workers=1"}) == plain);
  CHECK(losses_of(path, {"dataloader_num_workers=3"}) == plain);
  CHECK(losses_of(path, {"order=\"reference\""}) != plain);

  const TempFolder folder;
  const auto other = folder / "other";
  fs::copy(clips(), other, fs::copy_options::recursive);
  const auto both = path + ":0.25," + other + ":0.75";
  const auto mixed = losses_of(both, {"mix=\"weight\""});
  CHECK(mixed != plain);
  CHECK(losses_of(both, {"mix=\"weight\"", "dataloader_num_workers=2"}) == mixed);
  CHECK(losses_of(path + ":0.5," + other + ":0.5", {"mix=\"weight\""}) != mixed);
}

TEST_CASE("data: shares without a mix by weight are refused before anything is trained") {
  const TempFolder folder;
  const auto outcome = train_on(clips().string() + ":0.5", {}, folder);
  CHECK(outcome.exit_code == 2);
  CHECK(has_text(outcome.output, "the repeat count 0.5 is no integer"));
  CHECK_FALSE(fs::exists(folder / "out/metrics.jsonl"));
}

TEST_CASE("data: a sample that cannot be read stops the run, or is skipped and reported") {
  const TempFolder folder;
  copy_damaged(folder / "damaged");

  const auto stopped = train_on(folder / "damaged", {"shuffle=false"}, folder);
  CHECK(stopped.exit_code == 4);
  CHECK(has_text(stopped.output, "'xloat32' is none of float32"));
  CHECK(has_text(stopped.output, "data_chunk_0.parquet', row 0, column"));

  const TempFolder output;
  const auto skipped = train_on(folder / "damaged",
                                {"shuffle=false", "on_error=\"skip\"", "max_skipped=64"}, output);
  CHECK(skipped.exit_code == 0);
  CHECK(has_text(skipped.output, "row 0 is skipped (1 of at most 64)"));
  CHECK(metric(output / "out/metrics.jsonl", "loss").size() == 4);

  const TempFolder few;
  const auto many =
      train_on(folder / "damaged", {"shuffle=false", "on_error=\"skip\"", "max_skipped=3"}, few);
  CHECK(many.exit_code == 4);
  CHECK(has_text(many.output, "4 samples cannot be read, more than max_skipped = 3"));
}

TEST_CASE("data: rows that cannot be read are found before a run") {
  const TempFolder folder;
  copy_damaged(folder / "damaged");
  const auto damaged = run_limbeck({"inspect", folder / "damaged", "--samples", "0", "--stats"});
  CHECK(damaged.exit_code == 0);
  CHECK(has_text(damaged.output, "  row 0 cannot be read: "));
  CHECK(has_text(damaged.output, "  rows that cannot be read: 64 of "));
  CHECK(has_text(damaged.output, "  values of raw_latents: min -"));
  const auto sound = run_limbeck({"inspect", clips().string(), "--samples", "0", "--stats"});
  CHECK(has_text(sound.output, "  rows that cannot be read: 0 of "));
}
