// SPDX-License-Identifier: Apache-2.0
// Checkpoints in tests/fixtures/dcp: those that PyTorch wrote (make.py beside them says how), and
// one of every version of what limbeck writes. All of them stay readable.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "../unit/dcp_folder.hpp"
#include "../unit/error_message.hpp"
#include "dcp_sample.hpp"

#include <doctest/doctest.h>

#include "core/base/files.hpp"
#include "core/base/text.hpp"
#include "core/dcp/geometry.hpp"

namespace limbeck {
namespace {

namespace fs = std::filesystem;
using testing::DcpFolder;
using testing::has;
using testing::message_of;
using testing::read_all;

const fs::path kFixtures = fs::path(LIMBECK_SOURCE_DIR) / "tests/fixtures/dcp";

struct Parameter {
  const char* name;
  std::vector<int64_t> sizes;
};
const std::vector<Parameter> kParameters = {{"long.weight", {5, 3}},
                                            {"row.weight", {1, 5}},
                                            {"flat.bias", {7}},
                                            {"cube.weight", {3, 2, 2}}};

// first, first + 0.25, ...
std::vector<float> quarters(size_t count, float first) {
  std::vector<float> values;
  for (size_t i = 0; i < count; ++i) {
    values.push_back(first + static_cast<float>(i) / 4);
  }
  return values;
}

// What make.py saves: weights 100 k, 100 k + 0.25, ...; gradients k + 1; betas 0.5 and 0.75.
// Moments of two parameters.
void check_training(const fs::path& folder) {
  const DcpReader reader(folder);
  for (size_t k = 0; k < kParameters.size(); ++k) {
    const std::string name = kParameters[k].name;
    const auto& tensor = reader.index().tensors.at("model." + name);
    CHECK(tensor.sizes == kParameters[k].sizes);
    CHECK(std::string(tensor.type->name) == "float32");
    const auto weights = read_all<float>(reader, "model." + name);
    CHECK(weights == quarters(weights.size(), 100 * static_cast<float>(k)));
    if (name != "row.weight" && name != "flat.bias") {
      continue;
    }
    const auto gradient = static_cast<float>(k + 1);
    const std::string state = "optimizer.state." + name;
    const std::vector<float> means(weights.size(), 0.5F * gradient);
    const std::vector<float> squares(weights.size(), 0.25F * gradient * gradient);
    CHECK(read_all<float>(reader, state + ".exp_avg") == means);
    CHECK(read_all<float>(reader, state + ".exp_avg_sq") == squares);
    CHECK(reader.index().tensors.at(state + ".step").sizes.empty());
    CHECK(read_all<float>(reader, state + ".step") == std::vector<float>{1});
  }
  CHECK(std::get<int64_t>(reader.value("step").value) == 12);
  CHECK(std::get<DcpValue::Bytes>(reader.value("note").value).data ==
        std::string("\0\xff bytes", 8));
  const auto betas = reader.value("optimizer.param_groups.flat.bias.betas");
  const auto& list = std::get<DcpValue::List>(betas.value);
  CHECK(std::get<double>(list.at(0).value) == 0.5);
  CHECK(std::get<double>(list.at(1).value) == 0.75);
}

}  // namespace

TEST_CASE("dcp golden: FSDP2 on one, two and four processes, and on a mesh of two by two") {
  for (const char* name : {"fsdp-1", "fsdp-2", "fsdp-4", "hsdp-4"}) {
    CAPTURE(name);
    check_training(kFixtures / name);
  }
  const DcpIndex two = read_dcp_index(kFixtures / "fsdp-2");
  const auto& row = two.tensors.at("model.row.weight").chunks;
  REQUIRE(row.size() == 2);
  CHECK(row[0].box == DcpBox{{0, 0}, {1, 5}});
  CHECK(row[1].box == DcpBox{{1, 0}, {0, 5}});
  const auto& rows = two.tensors.at("model.long.weight").chunks;
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].box == DcpBox{{0, 0}, {3, 3}});
  CHECK(rows[1].box == DcpBox{{3, 0}, {2, 3}});
  CHECK(read_dcp_index(kFixtures / "fsdp-4").tensors.at("model.long.weight").chunks.size() >= 3);
}

TEST_CASE("dcp golden: a part of a tensor that lies on several ranks") {
  const DcpReader reader(kFixtures / "fsdp-4");
  std::vector<float> read(8);
  reader.read("model.long.weight", {{1, 1}, {4, 2}}, reinterpret_cast<std::byte*>(read.data()));
  CHECK(read == std::vector<float>{1, 1.25F, 1.75F, 2, 2.5F, 2.75F, 3.25F, 3.5F});
  std::vector<float> flat(3);
  reader.read("model.flat.bias", {{3}, {3}}, reinterpret_cast<std::byte*>(flat.data()));
  CHECK(flat == std::vector<float>{200.75F, 201, 201.25F});
}

TEST_CASE("dcp golden: types, layouts and Python's values") {
  const DcpReader reader(kFixtures / "plain");
  // 0 to 5 in each type.
  const auto bytes = [&](const std::string& name) { return read_all<uint8_t>(reader, name); };
  CHECK(read_all<double>(reader, "types.float64") == std::vector<double>{0, 1, 2, 3, 4, 5});
  CHECK(read_all<float>(reader, "types.float32") == std::vector<float>{0, 1, 2, 3, 4, 5});
  CHECK(read_all<uint16_t>(reader, "types.float16") ==
        std::vector<uint16_t>{0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500});
  CHECK(read_all<uint16_t>(reader, "types.bfloat16") ==
        std::vector<uint16_t>{0, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0});
  CHECK(bytes("types.float8_e4m3fn") == std::vector<uint8_t>{0, 0x38, 0x40, 0x44, 0x48, 0x4a});
  CHECK(bytes("types.float8_e5m2") == std::vector<uint8_t>{0, 0x3c, 0x40, 0x42, 0x44, 0x45});
  struct Complex {
    float real, imaginary;
  };
  CHECK(read_all<Complex>(reader, "types.complex64").at(5).real == 5);
  CHECK(read_all<int64_t>(reader, "types.int64") == std::vector<int64_t>{0, 1, 2, 3, 4, 5});
  CHECK(read_all<int32_t>(reader, "types.int32") == std::vector<int32_t>{0, 1, 2, 3, 4, 5});
  CHECK(read_all<int16_t>(reader, "types.int16") == std::vector<int16_t>{0, 1, 2, 3, 4, 5});
  CHECK(read_all<uint64_t>(reader, "types.uint64") == std::vector<uint64_t>{0, 1, 2, 3, 4, 5});
  CHECK(read_all<uint32_t>(reader, "types.uint32") == std::vector<uint32_t>{0, 1, 2, 3, 4, 5});
  CHECK(read_all<uint16_t>(reader, "types.uint16") == std::vector<uint16_t>{0, 1, 2, 3, 4, 5});
  CHECK(bytes("types.int8") == std::vector<uint8_t>{0, 1, 2, 3, 4, 5});
  CHECK(bytes("types.uint8") == std::vector<uint8_t>{0, 1, 2, 3, 4, 5});
  CHECK(bytes("mask") == std::vector<uint8_t>{1, 0, 1});
  for (const auto& [name, tensor] : reader.index().tensors) {
    if (name.starts_with("types.")) {
      CHECK(name == std::string("types.") + tensor.type->name);
    }
  }

  CHECK(read_all<float>(reader, "scalar") == std::vector<float>{2.5F});
  CHECK(reader.index().tensors.at("empty").sizes == std::vector<int64_t>{0, 4});
  CHECK(read_all<float>(reader, "empty").empty());
  // Not row-major in the file: a transposed tensor, a part of one, channels last.
  std::vector<float> turned;
  for (int column = 0; column < 6; ++column) {
    for (int row = 0; row < 4; ++row) {
      turned.push_back(static_cast<float>(row * 6 + column));
    }
  }
  CHECK(read_all<float>(reader, "turned") == turned);
  CHECK(read_all<float>(reader, "part") == std::vector<float>{8, 9, 10, 14, 15, 16});
  CHECK(read_all<float>(reader, "last") == testing::counting(24));
  std::vector<float> few(4);
  reader.read("turned", {{2, 1}, {2, 2}}, reinterpret_cast<std::byte*>(few.data()));
  CHECK(few == std::vector<float>{8, 14, 9, 15});

  CHECK(read_all<float>(reader, "nested.list.1.x") == std::vector<float>{1});
  CHECK(std::get<int64_t>(reader.value("nested.list.0").value) == 1);
  const auto tuple = reader.value("nested.tuple");
  const auto& list = std::get<DcpValue::List>(tuple.value);
  REQUIRE(list.size() == 6);
  CHECK(std::get<double>(list[1].value) == 2.5);
  CHECK(std::holds_alternative<DcpValue::None>(list[2].value));
  CHECK(std::get<bool>(list[3].value));
  CHECK(std::get<std::string>(list[4].value) == "text");
  CHECK(std::get<int64_t>(std::get<DcpValue::List>(list[5].value).at(0).value) == -3);
  CHECK(std::get<int64_t>(reader.value("large").value) == int64_t{1} << 40);
  CHECK(std::get<DcpValue::List>(reader.value("class").value).size() == 2);
  // What would be called is named.
  CHECK(has(std::get<DcpValue::Opaque>(reader.value("odd").value).what, "complex"));
}

TEST_CASE("dcp golden: damaged files of PyTorch are refused") {
  const DcpFolder folder;
  fs::copy(kFixtures / "fsdp-2", folder.path());
  std::string data = read_file(folder / "__1_0.distcp");
  const DcpIndex index = read_dcp_index(folder.path());
  const auto& item = index.tensors.at("model.long.weight").chunks.at(1).item;
  REQUIRE(item.file == "__1_0.distcp");
  // The numbers 2.25, 2.5, ...
  const float first = 2.25F;
  std::string bytes(sizeof first, '\0');
  std::memcpy(bytes.data(), &first, sizeof first);
  const size_t at = data.find(bytes, item.offset);
  REQUIRE(at < item.offset + item.length);
  data[at] = static_cast<char>(data[at] ^ 1);
  write_file(folder / "__1_0.distcp", data);
  const DcpReader reader(folder.path());
  CHECK(has(message_of([&] { read_all<float>(reader, "model.long.weight"); }),
            "__1_0.distcp: 'model.long.weight' at byte"));
  // A part that is on the other rank is not touched.
  std::vector<float> read(9);
  reader.read("model.long.weight", {{0, 0}, {3, 3}}, reinterpret_cast<std::byte*>(read.data()));
  CHECK(read == quarters(9, 0));
}

TEST_CASE("dcp golden: what version 1 wrote is read, and is what is written today") {
  const fs::path golden = kFixtures / "limbeck-1";
  CHECK(join(testing::differences_from_dcp_sample(golden)) == "");

  const DcpFolder folder;
  testing::write_dcp_sample(folder.path(), 2);
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(golden)) {
    const std::string name = entry.path().filename().string();
    CAPTURE(name);
    // A difference is a new version: keep this folder, and add one for the new version.
    CHECK(read_file(folder / name) == read_file(entry.path()));
    ++files;
  }
  CHECK(files == 3);
}

TEST_CASE("dcp golden: the sample is the same in any cut") {
  for (const int ranks : {1, 3, 8}) {
    const DcpFolder folder;
    testing::write_dcp_sample(folder.path(), ranks);
    CHECK(join(testing::differences_from_dcp_sample(folder.path())) == "");
  }
}

}  // namespace limbeck
