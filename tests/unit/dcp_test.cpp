// SPDX-License-Identifier: Apache-2.0
// Checkpoints on disk: what is written is read back, by any other cut; what is damaged is refused.
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "dcp_folder.hpp"
#include "error_message.hpp"

#include <doctest/doctest.h>

#include "core/base/files.hpp"

namespace limbeck {
namespace {

using testing::bytes_of;
using testing::counting;
using testing::DcpFolder;
using testing::has;
using testing::message_of;
using testing::read_all;

// Two tensors and a value.
DcpIndex write_small(const DcpFolder& folder) {
  DcpFileWriter writer(folder.path(), "__0_0.distcp");
  const auto* type = find_dcp_type("float32");
  const auto w = counting(6);
  const auto b = counting(3);
  DcpIndex index;
  index.tensors["w"] = {
      type, {2, 3}, {{{{0, 0}, {2, 3}}, writer.add_tensor(*type, {2, 3}, bytes_of(w))}}};
  index.tensors["b"] = {type, {3}, {{{{0}, {3}}, writer.add_tensor(*type, {3}, bytes_of(b))}}};
  index.values["meta"] = writer.add_value({std::string("text")});
  writer.close();
  write_file(folder / kDcpIndexFile, dcp_index_bytes(index));
  return index;
}

std::string refused(const DcpFolder& folder, const std::string& name = "w") {
  return message_of([&] { read_all<float>(DcpReader(folder.path()), name); });
}

void change_byte(const std::filesystem::path& path, uint64_t at, char by) {
  std::string bytes = read_file(path);
  REQUIRE(at < bytes.size());
  bytes[at] = static_cast<char>(bytes[at] ^ by);
  write_file(path, bytes);
}

void check_same(const DcpIndex& a, const DcpIndex& b) {
  REQUIRE(a.tensors.size() == b.tensors.size());
  REQUIRE(a.values.size() == b.values.size());
  const auto same_item = [](const DcpItem& x, const DcpItem& y) {
    return x.file == y.file && x.offset == y.offset && x.length == y.length;
  };
  for (const auto& [name, tensor] : a.tensors) {
    const auto& other = b.tensors.at(name);
    CHECK(tensor.type == other.type);
    CHECK(tensor.sizes == other.sizes);
    REQUIRE(tensor.chunks.size() == other.chunks.size());
    for (size_t i = 0; i < tensor.chunks.size(); ++i) {
      CHECK(tensor.chunks[i].box == other.chunks[i].box);
      CHECK(same_item(tensor.chunks[i].item, other.chunks[i].item));
    }
  }
  for (const auto& [name, item] : a.values) {
    CHECK(same_item(item, b.values.at(name)));
  }
}

}  // namespace

TEST_CASE("dcp: tensors of every type and values are read back") {
  const DcpFolder folder;
  DcpIndex index;
  std::map<std::string, std::vector<uint8_t>> written;
  {
    DcpFileWriter writer(folder.path(), "__0_0.distcp");
    uint8_t next = 1;
    for (const char* name : {"float64", "float32", "float16", "bfloat16", "float8_e4m3fn",
                             "float8_e5m2", "complex64", "complex128", "int64", "int32", "int16",
                             "int8", "uint64", "uint32", "uint16", "uint8", "bool"}) {
      const auto* type = find_dcp_type(name);
      REQUIRE(type != nullptr);
      auto& bytes = written[name];
      for (uint32_t i = 0; i < 15 * type->bytes; ++i) {
        bytes.push_back(next++);
      }
      const auto item = writer.add_tensor(*type, {3, 5}, bytes_of(bytes));
      index.tensors[name] = {type, {3, 5}, {{{{0, 0}, {3, 5}}, item}}};
    }
    const auto* type = find_dcp_type("float32");
    const std::vector<float> one = {2.5F};
    index.tensors["scalar"] = {type, {}, {{{{}, {}}, writer.add_tensor(*type, {}, bytes_of(one))}}};
    index.tensors["empty"] = {
        type, {0, 4}, {{{{0, 0}, {0, 4}}, writer.add_tensor(*type, {0, 4}, nullptr)}}};
    index.values["json"] = writer.add_value({std::string("{}")});
    index.values["bytes"] = writer.add_value({DcpValue::Bytes{std::string("\0\xff", 2)}});
    writer.close();
  }
  write_file(folder / kDcpIndexFile, dcp_index_bytes(index));

  const DcpReader reader(folder.path());
  check_same(reader.index(), index);
  for (const auto& [name, bytes] : written) {
    std::vector<uint8_t> read(bytes.size());
    reader.read(name, reinterpret_cast<std::byte*>(read.data()));
    CHECK(read == bytes);
  }
  CHECK(read_all<float>(reader, "scalar") == std::vector<float>{2.5F});
  CHECK(read_all<float>(reader, "empty").empty());
  CHECK(std::get<std::string>(reader.value("json").value) == "{}");
  CHECK(std::get<DcpValue::Bytes>(reader.value("bytes").value).data == std::string("\0\xff", 2));
}

TEST_CASE("dcp: payloads begin at multiples of 64 bytes, digests are of the file") {
  const DcpFolder folder;
  DcpFileWriter writer(folder.path(), "__3_1.distcp");
  const auto& type = *find_dcp_type("uint8");
  std::vector<uint8_t> bytes(3'000'001);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(i * 7 + i / 251);
  }
  for (const int64_t size : {int64_t{1}, int64_t{63}, int64_t{3'000'001}, int64_t{64}}) {
    const std::vector<uint8_t> part(bytes.begin(), bytes.begin() + size);
    const auto item = writer.add_tensor(type, {size}, bytes_of(part));
    CHECK(item.file == "__3_1.distcp");
    CHECK(item.offset % 64 == 0);
    CHECK(item.offset + item.length == writer.bytes());
    writer.add_value({int64_t{size}});
  }
  const FileDigest digest = writer.close();
  const std::string file = read_file(folder / "__3_1.distcp");
  CHECK(digest.bytes == file.size());
  CHECK(digest.xxh3 == XXH3_64bits(file.data(), file.size()));
  const std::string payload(bytes.begin(), bytes.end());
  const size_t at = file.find(payload);
  REQUIRE(at != std::string::npos);
  CHECK(at % 64 == 0);

  const FileDigest again = digest_of_file(folder / "__3_1.distcp");
  CHECK(again.bytes == digest.bytes);
  CHECK(again.xxh3 == digest.xxh3);
  change_byte(folder / "__3_1.distcp", at + 5, 1);
  CHECK(digest_of_file(folder / "__3_1.distcp").xxh3 != digest.xxh3);
  CHECK(has(message_of([&] { digest_of_file(folder / "none"); }), "cannot open"));
}

TEST_CASE("dcp: any part of a tensor in any cut") {
  const std::vector<int64_t> sizes = {5, 4, 3};
  // As flat ranges of five ranks, in rows of FSDP, in columns.
  std::vector<std::vector<DcpBox>> cuts(1);
  for (int64_t r = 0; r < 5; ++r) {
    const auto part =
        boxes_of_range(sizes, 60 * r / 5 + (r > 0 ? 1 : 0), 60 * (r + 1) / 5 + (r < 4 ? 1 : 0));
    cuts[0].insert(cuts[0].end(), part.begin(), part.end());
  }
  cuts.push_back({{{0, 0, 0}, {3, 4, 3}}, {{3, 0, 0}, {2, 4, 3}}, {{5, 0, 0}, {0, 4, 3}}});
  cuts.push_back({{{0, 0, 0}, {5, 1, 3}}, {{0, 1, 0}, {5, 3, 2}}, {{0, 1, 2}, {5, 3, 1}}});
  for (const auto& boxes : cuts) {
    const DcpFolder folder;
    testing::write_counting(folder, "w", sizes, boxes);
    const DcpReader reader(folder.path());
    CHECK(read_all<float>(reader, "w") == counting(60));
    for (const bool checks_sums : {true, false}) {
      for (int64_t a = 0; a < 5; ++a) {
        for (int64_t b = 0; b < 4; ++b) {
          for (int64_t c = 0; c < 3; ++c) {
            const DcpBox box = {{a, b, c}, {5 - a, (4 - b + 1) / 2, 3 - c}};
            std::vector<float> read(static_cast<size_t>(box.numel()), -1);
            reader.read("w", box, reinterpret_cast<std::byte*>(read.data()), checks_sums);
            std::vector<float> expected;
            for (int64_t i = 0; i < box.sizes[0]; ++i) {
              for (int64_t j = 0; j < box.sizes[1]; ++j) {
                for (int64_t k = 0; k < box.sizes[2]; ++k) {
                  expected.push_back(static_cast<float>(((a + i) * 4 + b + j) * 3 + c + k));
                }
              }
            }
            REQUIRE(read == expected);
          }
        }
      }
    }
    // An empty part reads nothing.
    reader.read("w", {{1, 0, 0}, {0, 4, 3}}, nullptr);
  }
}

TEST_CASE("dcp: parts of tensors larger than the blocks they are read in") {
  const DcpFolder folder;
  const std::vector<int64_t> sizes = {700, 1000};
  testing::write_counting(folder, "w", sizes, {{{0, 0}, {350, 1000}}, {{350, 0}, {350, 1000}}});
  const DcpReader reader(folder.path());
  CHECK(read_all<float>(reader, "w") == counting(700'000));
  for (const DcpBox& box :
       {DcpBox{{17, 0}, {600, 1000}}, DcpBox{{3, 990}, {690, 5}}, DcpBox{{349, 1}, {2, 999}}}) {
    std::vector<float> read(static_cast<size_t>(box.numel()));
    reader.read("w", box, reinterpret_cast<std::byte*>(read.data()));
    size_t n = 0;
    bool is_same = true;
    for (int64_t i = 0; i < box.sizes[0]; ++i) {
      for (int64_t j = 0; j < box.sizes[1]; ++j) {
        is_same = is_same &&
                  read[n++] == static_cast<float>((box.offsets[0] + i) * 1000 + box.offsets[1] + j);
      }
    }
    CHECK(is_same);
  }
}

TEST_CASE("dcp: damaged numbers are told by tensor, file and place") {
  const DcpFolder folder;
  const auto index = write_small(folder);
  const auto& item = index.tensors.at("w").chunks[0].item;
  const std::string file = read_file(folder / item.file);
  const auto w = counting(6);
  const size_t payload = file.find(std::string(reinterpret_cast<const char*>(w.data()), 24));
  REQUIRE(payload != std::string::npos);
  change_byte(folder / item.file, payload + 9, 0x40);

  const std::string text = refused(folder);
  CHECK(has(text, "__0_0.distcp: 'w' at byte " + std::to_string(item.offset)));
  CHECK(has(text, "the CRC of the 24 bytes"));
  const DcpReader reader(folder.path());
  // Also when the damaged part is not what was asked for.
  message_of([&] {
    float one = 0;
    reader.read("w", {{0, 0}, {1, 1}}, reinterpret_cast<std::byte*>(&one));
  });
  CHECK(read_all<float>(reader, "b") == counting(3));
  // Unchecked it is what is on the disk.
  CHECK(read_all<float>(reader, "w", false) != w);
}

TEST_CASE("dcp: a bit that flips anywhere is seen, or changes nothing that is read") {
  const DcpFolder folder;
  const auto index = write_small(folder);
  for (const char* name : {"__0_0.distcp", ".metadata"}) {
    const std::string good = read_file(folder / name);
    size_t seen = 0;
    for (size_t at = 0; at < good.size(); ++at) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << (at % 8)));
      std::ofstream(folder / name, std::ios::binary) << bytes;
      try {
        const DcpReader reader(folder.path());
        const bool has_all =
            reader.index().has("w") && reader.index().has("b") && reader.index().has("meta");
        if (has_all) {
          // Outside of CHECK, which would keep what they throw.
          const auto w = read_all<float>(reader, "w");
          const auto b = read_all<float>(reader, "b");
          const auto meta = reader.value("meta");
          CHECK(w == counting(6));
          CHECK(b == counting(3));
          CHECK(std::get<std::string>(meta.value) == "text");
        }
      } catch (const Error& error) {
        ++seen;
        REQUIRE(error.fault() == Fault::kData);
      }
    }
    CHECK(seen > good.size() / 3);
    std::ofstream(folder / name, std::ios::binary) << good;
  }
  CHECK(read_all<float>(DcpReader(folder.path()), "w") == counting(6));
}

TEST_CASE("dcp: files that are cut, missing or no files are told at once") {
  const DcpFolder folder;
  write_small(folder);
  const std::string data = read_file(folder / "__0_0.distcp");
  std::filesystem::resize_file(folder / "__0_0.distcp", data.size() - 1);
  CHECK(has(refused(folder), "the file is cut short: it has"));
  std::filesystem::remove(folder / "__0_0.distcp");
  CHECK(has(refused(folder), "the file is missing, which .metadata names"));
  std::filesystem::create_directory(folder / "__0_0.distcp");
  CHECK(has(refused(folder), "the file is missing"));
  std::filesystem::remove(folder / kDcpIndexFile);
  CHECK(has(refused(folder), "has no file .metadata"));
  CHECK(has(message_of([] { read_dcp_index("/nonexistent"); }), "/nonexistent: is no complete"));
}

TEST_CASE("dcp: names and parts that are not there") {
  const DcpFolder folder;
  write_small(folder);
  const DcpReader reader(folder.path());
  std::byte out[24];
  CHECK(has(message_of([&] { reader.read("v", out); }), "has no tensor 'v'"));
  CHECK(has(message_of([&] { reader.read("meta", out); }), "has no tensor 'meta'"));
  CHECK(has(message_of([&] { reader.value("w"); }), "has no value 'w'"));
  for (const DcpBox& box : {DcpBox{{0, 1}, {2, 3}}, DcpBox{{0}, {2}}, DcpBox{{-1, 0}, {1, 1}}}) {
    CHECK(has(message_of([&] { reader.read("w", box, out); }), "is not in the tensor 'w'"));
  }
}

TEST_CASE("dcp: an item that is not what the index says is refused") {
  const DcpFolder folder;
  auto index = write_small(folder);
  std::swap(index.tensors["w"].chunks[0].item, index.tensors["b"].chunks[0].item);
  write_file(folder / kDcpIndexFile, dcp_index_bytes(index));
  CHECK(has(refused(folder),
            "the item is float32 of sizes [3], by .metadata it is float32 of sizes [2, 3]"));
  index.tensors["w"].type = find_dcp_type("int32");
  std::swap(index.tensors["w"].chunks[0].item, index.tensors["b"].chunks[0].item);
  write_file(folder / kDcpIndexFile, dcp_index_bytes(index));
  CHECK(has(refused(folder), "by .metadata it is int32"));
  index.tensors["w"].type = find_dcp_type("float32");
  index.tensors["w"].chunks[0].item = index.values["meta"];
  write_file(folder / kDcpIndexFile, dcp_index_bytes(index));
  CHECK(has(refused(folder), "is no plain tensor"));
}

TEST_CASE("dcp: an index that would be refused is not written") {
  const auto* type = find_dcp_type("float32");
  const auto refused_index = [](const DcpTensor& tensor) {
    DcpIndex index;
    index.tensors["w"] = tensor;
    return message_of([&] { dcp_index_bytes(index); }, Fault::kInternal);
  };
  const DcpItem item = {"__0_0.distcp", 0, 10};
  CHECK(has(refused_index({type, {4}, {{{{0}, {3}}, item}}}),
            "'w' of a checkpoint has chunks that leave gaps"));
  CHECK(has(refused_index({type, {4}, {{{{0}, {3}}, item}, {{{2}, {2}}, item}}}), "overlap"));
  CHECK(has(refused_index({type, {4}, {{{{0}, {5}}, item}}}), "does not lie in its sizes [4]"));
  CHECK(has(refused_index({nullptr, {4}, {{{{0}, {4}}, item}}}), "has no type"));
  for (const char* file : {"", "..", "../x", "/etc/passwd", "a/b", ".metadata"}) {
    CHECK(has(refused_index({type, {4}, {{{{0}, {4}}, {file, 0, 10}}}}),
              "which is not the name of a data file"));
  }
  CHECK(has(refused_index({type, {4}, {{{{0}, {4}}, {"x", ~uint64_t{0}, 10}}}}), "at byte"));
  DcpIndex index;
  index.values["\xff"] = item;
  CHECK(has(message_of([&] { dcp_index_bytes(index); }, Fault::kInternal), "not UTF-8"));
  index = {};
  index.values["w"] = item;
  index.tensors["w"] = {type, {}, {{{{}, {}}, item}}};
  CHECK(has(message_of([&] { dcp_index_bytes(index); }, Fault::kInternal), "a tensor and a value"));
}

TEST_CASE("dcp: an index of many entries is read back, and names are written once") {
  const auto* type = find_dcp_type("bfloat16");
  DcpIndex index;
  uint64_t at = 0;
  const std::string stem(60, 'n');
  for (int i = 0; i < 1000; ++i) {
    DcpTensor tensor = {type, {70'000, 3}, {}};
    for (int64_t r = 0; r < 2; ++r) {
      tensor.chunks.push_back(
          {{{35'000 * r, 0}, {35'000, 3}}, {"__" + std::to_string(r) + "_0.distcp", at, 210'700}});
      at += uint64_t{1} << 33;
    }
    index.tensors[stem + std::to_string(i)] = tensor;
  }
  const std::string bytes = dcp_index_bytes(index);
  check_same(parse_dcp_index(bytes, "here"), index);
  CHECK(bytes.size() < 400'000);
}

TEST_CASE("dcp: an index that is no such pickle is refused with a reason") {
  const DcpFolder folder;
  write_small(folder);
  const std::string good = read_file(folder / kDcpIndexFile);
  const auto refused_with = [&](const std::string& old, const std::string& by) {
    std::string bytes = good;
    const size_t found = bytes.find(old);
    REQUIRE(found != std::string::npos);
    bytes.replace(found, old.size(), by);
    return message_of([&] { parse_dcp_index(bytes, "c/.metadata"); });
  };
  CHECK(has(refused_with("Metadata\n", "Metabata\n"),
            "c/.metadata: is not the index of a PyTorch distributed checkpoint"));
  CHECK(has(refused_with("1.0.0", "2.0.0"), "is of version '2.0.0' of the format"));
  CHECK(
      has(refused_with("float32", "quint32"), "a type that limbeck does not know: torch.quint32"));
  CHECK(has(refused_with("BytesStorageMetadata", "OtherStorageMetadata"),
            "'meta' is a torch.distributed.checkpoint.metadata.OtherStorageMetadata"));
  CHECK(has(refused_with("storage_data", "storage_dada"), "has no storage_data"));
  CHECK(has(refused_with("__0_0.distcp", "../00.distcp"), "which is not the name of a data file"));
  CHECK(has(refused_with("chunks", "chinks"), "has no chunks"));
  // The state of the first item, with one attribute more.
  const std::string length("length");
  const size_t end = good.find("ub", good.find(length));
  const std::string before = good.substr(end - 8, 8);
  const auto text = [](const std::string& content) {
    return std::string("X") + static_cast<char>(content.size()) + std::string(3, '\0') + content;
  };
  CHECK(has(refused_with(before + "ub",
                         before + text("transform_descriptors") + "]" + text("zstd") + "aub"),
            "was transformed when it was saved"));
  CHECK(has(message_of([&] { parse_dcp_index("", "c/.metadata"); }),
            "c/.metadata: the pickle is damaged at byte 0"));
}

TEST_CASE("dcp: files of a writer") {
  const DcpFolder folder;
  { DcpFileWriter writer(folder.path(), "x"); }
  CHECK(has(message_of([&] { DcpFileWriter(folder.path(), "x"); }), "cannot create"));
  CHECK(has(message_of([&] { DcpFileWriter(folder / "none", "x"); }), "none/x: No such file"));
  DcpFileWriter writer(folder.path(), "y");
  CHECK(has(message_of([&] { writer.add_value({DcpValue::Opaque{"a.B"}}); }, Fault::kInternal),
            "a.B"));
  CHECK(writer.bytes() == 0);
}

TEST_CASE("dcp: a disk that takes no more is told") {
  const DcpFolder folder;
  DcpFileWriter writer(folder.path(), "x");
  const std::vector<std::byte> bytes(100'000);
  // What is written beyond the limit fails as on a full disk.
  struct rlimit old = {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &old) == 0);
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small = {50'000, old.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  std::string text;
  try {
    writer.add_tensor(*find_dcp_type("uint8"), {100'000}, bytes.data());
  } catch (const Error& error) {
    text = error.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  CHECK(has(text, "cannot write"));
  CHECK(has(text, (folder / "x").string()));
}

}  // namespace limbeck
