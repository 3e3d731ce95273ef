// SPDX-License-Identifier: Apache-2.0
// `limbeck inspect` on each kind of thing, and on what is none of them.
#include <cstdint>
#include <filesystem>
#include <string>

#include "program.hpp"

#include <doctest/doctest.h>

using namespace limbeck::testing;

namespace {

bool says(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

// A safetensors file with this header and as many zeros.
std::string safetensors(const std::string& header, size_t data) {
  std::string text(8, '\0');
  for (size_t i = 0; i < 8; ++i) {
    text[i] = static_cast<char>(static_cast<uint64_t>(header.size()) >> (8 * i));
  }
  return text + header + std::string(data, '\0');
}

const std::string kBlocks = R"({"__metadata__":{"made_by":"a test"},)"
                            R"("blocks.0.w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
                            R"("blocks.1.w":{"dtype":"BF16","shape":[2,3],"data_offsets":[12,24]},)"
                            R"("head":{"dtype":"F32","shape":[2],"data_offsets":[24,32]}})";

}  // namespace

TEST_CASE("weights are told by their names, types, shapes and sizes, blocks in one line") {
  const TempFolder folder;
  auto file = safetensors(kBlocks, 32);
  file[file.size() - 1] = 0x40;  // head is [0, 2]
  write_text(folder / "model.safetensors", file);
  for (const auto& path : {folder / "model.safetensors", folder.path().string()}) {
    const auto outcome = run_limbeck({"inspect", path});
    CHECK(outcome.exit_code == 0);
    CHECK(says(outcome.output, "3 tensors, 14 numbers, 32 bytes"));
    CHECK(says(outcome.output, "BF16: 2 tensors, 24 bytes"));
    CHECK(says(outcome.output, "made_by = a test"));
    CHECK(says(outcome.output, "blocks.*.w  BF16  [2, 3]  24 bytes in 2"));
  }
  const auto some =
      run_limbeck({"inspect", folder / "model.safetensors", "--filter", "head", "--stats"});
  CHECK(says(some.output, "head  F32  [2]  8 bytes  min 0, max 2, mean 1, std 1"));
  CHECK_FALSE(says(some.output, "blocks.0.w  "));
  const auto none = run_limbeck({"inspect", folder / "model.safetensors", "--filter", "tail"});
  CHECK(none.exit_code == 4);
  CHECK(says(none.output, "no tensor has 'tail' in its name"));
}

TEST_CASE("damaged weights are refused as a run would refuse them") {
  const TempFolder folder;
  write_text(folder / "a.safetensors", safetensors(kBlocks, 31));
  const auto outcome = run_limbeck({"inspect", folder / "a.safetensors"});
  CHECK(outcome.exit_code == 4);
  CHECK(says(outcome.output, "tensor 'head': its data end at byte 32, but the file has 31"));
}

TEST_CASE("a data set is told by its rows, shapes and captions, with a contact sheet") {
  const TempFolder folder;
  const auto sheet = folder / "sheet.png";
  const auto outcome =
      run_limbeck({"inspect", clips().string(), "--samples", "1", "--contact-sheet", sheet});
  CHECK(outcome.exit_code == 0);
  CHECK(says(outcome.output, ": a data set (parquet)"));
  CHECK(says(outcome.output, "raw_latents.shapes: ["));
  CHECK(says(outcome.output, "compression: uncompressed"));
  CHECK(says(outcome.output, "caption: \"digit "));
  CHECK_FALSE(says(outcome.output, "  row 1\n"));
  CHECK(says(outcome.output, "contact sheet: " + sheet + ", first frames of 16 rows"));
  CHECK(read_text(sheet).substr(1, 3) == "PNG");
}

TEST_CASE("a manifest is told by its plugins, roles and data") {
  const auto outcome = run_limbeck({"inspect", "tests/e2e/tiny_sft.toml", "--samples", "0"});
  CHECK(outcome.exit_code == 0);
  CHECK(says(outcome.output, ": a manifest"));
  CHECK(says(outcome.output, "  plugin wan: org.limbeck.wan "));
  CHECK(says(outcome.output, "  method: sft (plugin sft)"));
  CHECK(says(outcome.output, "  role student: "));
  CHECK(says(outcome.output, ", trained, "));
}

TEST_CASE("a plugin is told as `plugin info` tells it") {
  const auto path = LIMBECK_BINARY_DIR "/lib/limbeck/plugins/basics.so";
  const auto outcome = run_limbeck({"inspect", path});
  CHECK(outcome.exit_code == 0);
  CHECK(says(outcome.output, "org.limbeck.basics"));
}

TEST_CASE("several things are told one after the other, and what is not known is refused") {
  const TempFolder folder;
  write_text(folder / "model.safetensors", safetensors(kBlocks, 32));
  write_text(folder / "notes.txt", "nothing");
  const auto both =
      run_limbeck({"inspect", folder / "model.safetensors", folder / "model.safetensors"});
  CHECK(both.output.find(": weights") != both.output.rfind(": weights"));
  const auto text = run_limbeck({"inspect", folder / "notes.txt"});
  CHECK(text.exit_code == 4);
  CHECK(says(text.output, "nothing is known of files like this"));
  CHECK(run_limbeck({"inspect", folder / "none"}).exit_code == 4);
  CHECK(run_limbeck({"inspect"}).exit_code == 64);
  CHECK(run_limbeck({"inspect", folder / "notes.txt", "--samples", "-1"}).exit_code == 64);
  const TempFolder empty;
  CHECK(says(run_limbeck({"inspect", empty.path().string()}).output,
             "nothing in this folder is known"));
}
