// SPDX-License-Identifier: Apache-2.0
// Writing weights as a stream, copying a pipeline, comparing, and folders that appear at once.
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "dcp_folder.hpp"
#include "error_message.hpp"
#include "fixtures/saved_state.hpp"

#include <doctest/doctest.h>

#include "core/transfer/compare.hpp"
#include "core/transfer/component.hpp"
#include "core/transfer/output_folder.hpp"
#include "core/transfer/pipeline.hpp"
#include "core/weights/weight_files.hpp"

namespace limbeck {
namespace {

using testing::DcpFolder;
using testing::has;
using testing::message_of;
using testing::ramp;
using testing::StateTensors;

namespace fs = std::filesystem;

const WeightType* type(const char* name) { return find_weight_type(name); }

std::vector<TensorCopy> copies_of(const TensorFiles& source, const char* as) {
  std::vector<TensorCopy> copies;
  for (const auto& [name, shape] : source.tensors()) {
    copies.push_back({name, name, type(as)});
  }
  return copies;
}

std::vector<double> numbers_of(const TensorFiles& files, const std::string& name) {
  std::vector<double> numbers;
  read_blocks(files, name, [&](const std::byte* data, uint64_t, uint64_t bytes) {
    const auto& shape = files.shape(name);
    for (uint64_t i = 0; i < bytes * 8 / shape.type->bits; ++i) {
      float value = 0;
      std::memcpy(&value, data + i * sizeof(float), sizeof(float));
      numbers.push_back(static_cast<double>(value));
    }
  });
  return numbers;
}

void flip_last_bit(const fs::path& path) {
  auto bytes = read_file(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(path, bytes);
}

ino_t inode_of(const fs::path& path) {
  struct stat status = {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  return status.st_ino;
}

// 24 bytes each as fp32.
const StateTensors kThree = {{"a", ramp({2, 3}, 0)}, {"b", ramp({3, 2}, 10)}, {"c", ramp({6}, 20)}};

}  // namespace

TEST_CASE("weights are written as one file, with the digest of its bytes") {
  const DcpFolder folder;
  testing::write_state(folder / "dcp", kThree);
  const auto source = open_tensor_files(folder / "dcp");
  fs::create_directory(folder / "out");
  const auto files = write_component(folder / "out", *source, copies_of(*source, "F32"));
  REQUIRE(files.size() == 1);
  CHECK(files[0].path == folder / "out" / "diffusion_pytorch_model.safetensors");
  const auto digest = digest_of_file(files[0].path);
  CHECK(digest.bytes == files[0].bytes);
  CHECK(digest.xxh3 == files[0].xxh3);
  const auto written = open_weights(folder / "out");
  CHECK(written->shape("b").sizes == std::vector<int64_t>{3, 2});
  CHECK(numbers_of(*written, "b") == numbers_of(*source, "b"));
  CHECK(numbers_of(*written, "c").at(5) == 20.625);
  verify_component(folder / "out", *source, copies_of(*source, "F32"));
}

TEST_CASE("shards hold at most the limit, and a larger tensor alone") {
  const DcpFolder folder;
  auto tensors = kThree;
  tensors["b"] = ramp({100}, 10);
  tensors["d"] = ramp({1}, 30);
  testing::write_state(folder / "dcp", tensors);
  const auto source = open_tensor_files(folder / "dcp");
  fs::create_directory(folder / "out");
  // a 24, b 400, c 24, d 4
  const auto files = write_component(folder / "out", *source, copies_of(*source, "F32"), 28);
  REQUIRE(files.size() == 4);
  const auto index = nlohmann::json::parse(
      read_file(folder / "out" / "diffusion_pytorch_model.safetensors.index.json"));
  CHECK(index["metadata"]["total_size"] == 452);
  CHECK(index["weight_map"]["a"] == "diffusion_pytorch_model-00001-of-00003.safetensors");
  CHECK(index["weight_map"]["b"] == "diffusion_pytorch_model-00002-of-00003.safetensors");
  CHECK(index["weight_map"]["c"] == "diffusion_pytorch_model-00003-of-00003.safetensors");
  CHECK(index["weight_map"]["d"] == "diffusion_pytorch_model-00003-of-00003.safetensors");
  verify_component(folder / "out", *source, copies_of(*source, "F32"));
  // One byte less, and c and d part.
  fs::create_directory(folder / "more");
  CHECK(write_component(folder / "more", *source, copies_of(*source, "F32"), 27).size() == 5);
}

TEST_CASE("a tensor of several blocks is written and read as it is") {
  const DcpFolder folder;
  const int64_t rows = 3 * static_cast<int64_t>(kTensorBlock) / 40 + 1;
  auto large = ramp({rows, 5}, 0);
  for (size_t i = 0; i < large.numbers.size(); ++i) {
    large.numbers[i] = static_cast<float>(i);
  }
  testing::write_state(folder / "dcp", {{"large", large}});
  const auto source = open_tensor_files(folder / "dcp");
  REQUIRE(source->shape("large").bytes() > kTensorBlock);
  fs::create_directory(folder / "out");
  write_component(folder / "out", *source, copies_of(*source, "F32"));
  const auto numbers = numbers_of(*open_weights(folder / "out"), "large");
  REQUIRE(numbers.size() == large.numbers.size());
  size_t wrong = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    wrong += numbers[i] != static_cast<double>(i) ? 1 : 0;
  }
  CHECK(wrong == 0);
  verify_component(folder / "out", *source, copies_of(*source, "F32"));
}

TEST_CASE("verifying sees one bit, another name and another shape") {
  const DcpFolder folder;
  testing::write_state(folder / "dcp", kThree);
  const auto source = open_tensor_files(folder / "dcp");
  fs::create_directory(folder / "out");
  const auto copies = copies_of(*source, "BF16");
  const auto files = write_component(folder / "out", *source, copies);
  verify_component(folder / "out", *source, copies);
  flip_last_bit(files[0].path);
  CHECK(has(message_of([&] { verify_component(folder / "out", *source, copies); }),
            "tensor 'c' reads back with other bits than were written"));
  const std::vector<TensorCopy> fewer(copies.begin(), copies.end() - 1);
  CHECK(has(message_of([&] { verify_component(folder / "out", *source, fewer); }),
            "has 3 tensors, but 2 were written"));
  CHECK(
      has(message_of([&] { verify_component(folder / "out", *source, copies_of(*source, "F32")); }),
          "reads as BF16 [2, 3], but F32 [2, 3] was written"));
}

TEST_CASE("damage in the source is found by its own sums, not exported") {
  const DcpFolder folder;
  testing::write_state(folder / "dcp", kThree);
  auto bytes = read_file(folder / "dcp" / "__0_0.distcp");
  const float wanted = 20.25F;
  char pattern[sizeof(wanted)];
  std::memcpy(pattern, &wanted, sizeof(wanted));
  const auto at = bytes.find(std::string(pattern, sizeof(pattern)));
  REQUIRE(at != std::string::npos);
  bytes[at] = static_cast<char>(bytes[at] ^ 4);
  write_file(folder / "dcp" / "__0_0.distcp", bytes);
  const auto source = open_tensor_files(folder / "dcp");
  fs::create_directory(folder / "out");
  CHECK(
      has(message_of([&] { write_component(folder / "out", *source, copies_of(*source, "F32")); }),
          "the CRC of the"));
}

TEST_CASE("numbers that the new type cannot hold are an error, as are two tensors of one name") {
  const DcpFolder folder;
  testing::write_state(folder / "dcp", {{"a", ramp({4}, 0)}, {"b", ramp({4}, 70000)}});
  const auto source = open_tensor_files(folder / "dcp");
  fs::create_directory(folder / "out");
  CHECK(
      has(message_of([&] { write_component(folder / "out", *source, copies_of(*source, "F16")); }),
          "tensor 'b' has 4 numbers that F16 cannot hold"));
  fs::create_directory(folder / "two");
  CHECK(has(message_of([&] {
              write_component(folder / "two", *source,
                              {{"x", "a", type("F32")}, {"x", "b", type("F32")}});
            }),
            "two tensors would be called 'x'"));
  CHECK(has(message_of([&] {
              write_component(folder / "two", *source, {{"x", "a", type("I32")}});
            }),
            "tensor 'a' is F32, which does not become I32"));
}

TEST_CASE("a pipeline is copied with links, follows links, and leaves old weights out") {
  const DcpFolder folder;
  const auto base = folder / "base";
  write_file(base / "model_index.json", "{}");
  write_file(base / ".cache" / "x", "x");
  write_file(base / "limbeck_export.json", "{}");
  write_file(base / "vae" / "diffusion_pytorch_model.safetensors", "vae");
  write_file(base / "transformer" / "config.json", "{}");
  write_file(base / "transformer" / "diffusion_pytorch_model-00001-of-00002.safetensors", "old");
  write_file(base / "transformer" / "diffusion_pytorch_model.safetensors.index.json", "{}");
  write_file(base / "transformer" / "diffusion_pytorch_model.fp16.bin", "old");
  write_file(base / "transformer" / "notes.txt", "kept");
  // As a download cache has it: the file is elsewhere.
  write_file(folder / "blobs" / "17", "tokens");
  fs::create_directory(base / "tokenizer");
  fs::create_symlink("../../blobs/17", base / "tokenizer" / "vocabulary");
  fs::create_directory(folder / "out");

  const auto copy = copy_pipeline(base, folder / "out", {"transformer"}, "limbeck_export.json");
  CHECK(copy.linked == 4);
  CHECK(copy.copied == 0);
  CHECK(copy.left_out ==
        std::vector<std::string>{"transformer/diffusion_pytorch_model-00001-of-00002.safetensors",
                                 "transformer/diffusion_pytorch_model.fp16.bin",
                                 "transformer/diffusion_pytorch_model.safetensors.index.json"});
  CHECK_FALSE(fs::exists(folder / "out" / ".cache"));
  CHECK_FALSE(fs::exists(folder / "out" / "limbeck_export.json"));
  CHECK_FALSE(fs::exists(folder / "out" / "transformer" / "config.json"));
  CHECK(read_file(folder / "out" / "transformer" / "notes.txt") == "kept");
  // The same file, and no link that could break.
  CHECK(inode_of(folder / "out" / "vae" / "diffusion_pytorch_model.safetensors") ==
        inode_of(base / "vae" / "diffusion_pytorch_model.safetensors"));
  CHECK_FALSE(fs::is_symlink(folder / "out" / "tokenizer" / "vocabulary"));
  fs::remove_all(base);
  fs::remove_all(folder / "blobs");
  CHECK(read_file(folder / "out" / "tokenizer" / "vocabulary") == "tokens");
}

TEST_CASE("links of a pipeline that lead nowhere or in a circle are refused") {
  const DcpFolder folder;
  write_file(folder / "a" / "model_index.json", "{}");
  fs::create_symlink("nothing", folder / "a" / "lost");
  fs::create_directory(folder / "out");
  CHECK(has(message_of([&] { copy_pipeline(folder / "a", folder / "out", {}, ""); }),
            "lost: cannot be followed"));
  write_file(folder / "b" / "inner" / "x", "x");
  fs::create_symlink("..", folder / "b" / "inner" / "up");
  fs::create_directory(folder / "out2");
  CHECK(has(message_of([&] { copy_pipeline(folder / "b", folder / "out2", {}, ""); }),
            "is a link to a folder that it is in"));
}

TEST_CASE("a new folder appears at once, or leaves nothing") {
  const DcpFolder folder;
  const auto place = folder / "deep" / "out";
  {
    const OutputFolder given_up(place, {});
    write_file(given_up.path() / "x", "x");
  }
  CHECK(fs::is_empty(folder / "deep"));
  OutputFolder kept(place, {});
  write_file(kept.path() / "x", "x");
  CHECK_FALSE(fs::exists(place));
  kept.publish();
  CHECK(read_file(place / "x") == "x");
  CHECK(std::distance(fs::directory_iterator(folder / "deep"), fs::directory_iterator()) == 1);
}

TEST_CASE("what is there is replaced only if asked for and written by this program") {
  const DcpFolder folder;
  write_file(folder / "out" / "x", "old");
  CHECK(has(message_of([&] { OutputFolder(folder / "out", {}); }), "out: exists already"));
  CHECK(has(message_of([&] {
              OutputFolder(folder / "out", {true, "record.json", {}});
            }),
            "is not replaced: it has no record.json"));
  write_file(folder / "out" / "record.json", "{}");
  { const OutputFolder given_up(folder / "out", {true, "record.json", {}}); }
  CHECK(read_file(folder / "out" / "x") == "old");
  OutputFolder replacement(folder / "out", {true, "record.json", {}});
  write_file(replacement.path() / "y", "new");
  replacement.publish();
  CHECK_FALSE(fs::exists(folder / "out" / "x"));
  CHECK(read_file(folder / "out" / "y") == "new");
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 1);
  fs::create_directory(folder / "empty");
  OutputFolder(folder / "empty", {}).publish();
}

TEST_CASE("what is read is never what is written") {
  const DcpFolder folder;
  write_file(folder / "out" / "record.json", "{}");
  fs::create_directories(folder / "out" / "base");
  fs::create_symlink("out/base", folder / "link");
  CHECK(has(message_of([&] {
              OutputFolder(folder / "out", {true, "record.json", {folder / "link"}});
            }),
            "which is read, is inside it"));
  CHECK(has(message_of([&] {
              OutputFolder(folder / "out", {true, "record.json", {folder / "out"}});
            }),
            "which is read, is inside it"));
  CHECK(has(message_of([&] {
              OutputFolder(folder / "link" / "new", {false, "", {folder / "out"}});
            }),
            ", which is read"));
}

TEST_CASE("sets of tensors are compared by names, shapes, types and values") {
  const DcpFolder folder;
  testing::write_state(folder / "a", {{"roles.r.m.same", ramp({2}, 1)},
                                      {"roles.r.m.value", ramp({3}, 1)},
                                      {"roles.r.m.shape", ramp({4}, 1)},
                                      {"roles.r.m.gone", ramp({1}, 1)},
                                      {"trainer.x", ramp({1}, 1)}});
  auto value = ramp({3}, 1);
  value.numbers[1] += 0.5F;
  value.numbers[2] = std::numeric_limits<float>::quiet_NaN();
  testing::write_state(folder / "b", {{"same", ramp({2}, 1)},
                                      {"value", value},
                                      {"shape", ramp({2, 2}, 1)},
                                      {"more", ramp({1}, 1)}});
  const auto a = open_tensor_files(folder / "a"), b = open_tensor_files(folder / "b");
  const auto all = compare_tensors(*a, *b, "roles.r.m.");
  CHECK(all.only_first == std::vector<std::string>{"gone"});
  CHECK(all.only_second == std::vector<std::string>{"more"});
  REQUIRE(all.shapes.size() == 1);
  CHECK(all.shapes[0].name == "shape");
  REQUIRE(all.values.size() == 1);
  CHECK(all.values[0].name == "value");
  CHECK(all.values[0].count == 2);
  CHECK(all.values[0].max_abs == 0.5);
  CHECK(all.values[0].nans == 1);
  CHECK(all.compared == 2);
  CHECK(compare_tensors(*a, *a, "").is_empty());
  // Another type with equal values is a difference of types alone.
  fs::create_directory(folder / "c");
  write_component(folder / "c", *b, {{"same", "same", type("BF16")}});
  const auto c = open_tensor_files(folder / "c");
  const auto types = compare_tensors(*b, *c, "");
  REQUIRE(types.types.size() == 1);
  CHECK(types.values.empty());
}

}  // namespace limbeck
