// SPDX-License-Identifier: Apache-2.0
#include "dcp_sample.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/files.hpp"
#include "core/dcp/index.hpp"
#include "core/dcp/reader.hpp"
#include "core/dcp/writer.hpp"

namespace limbeck::testing {
namespace {

struct Entry {
  const DcpType* type;
  std::vector<int64_t> sizes;
  std::vector<std::byte> bytes;
};

int64_t numel_of(const std::vector<int64_t>& sizes) {
  return DcpBox{std::vector<int64_t>(sizes.size(), 0), sizes}.numel();
}

template <class T>
void append(std::vector<std::byte>& bytes, T value) {
  const size_t at = bytes.size();
  bytes.resize(at + sizeof value);
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

// number(i) for each element.
template <class Number>
Entry make(const char* type, std::vector<int64_t> sizes, const Number& number) {
  Entry entry = {find_dcp_type(type), std::move(sizes), {}};
  for (int64_t i = 0; i < numel_of(entry.sizes); ++i) {
    append(entry.bytes, number(i));
  }
  return entry;
}

// first, first + 0.25, ...
Entry quarters(std::vector<int64_t> sizes, float first) {
  return make("float32", std::move(sizes),
              [&](int64_t i) { return first + static_cast<float>(i) / 4; });
}

std::map<std::string, Entry> entries() {
  std::map<std::string, Entry> all;
  const std::vector<std::pair<std::string, std::vector<int64_t>>> parameters = {
      {"long.weight", {5, 3}},
      {"row.weight", {1, 5}},
      {"flat.bias", {7}},
      {"cube.weight", {3, 2, 2}}};
  float first = 0;
  for (const auto& [name, sizes] : parameters) {
    const std::string state = "optimizers.student.state.transformer." + name;
    all["roles.student.transformer." + name] = quarters(sizes, first);
    all[state + ".exp_avg"] = quarters(sizes, first + 1000);
    all[state + ".exp_avg_sq"] = quarters(sizes, first + 2000);
    all["ema.student.transformer." + name] = quarters(sizes, first + 3000);
    first += 100;
  }
  all["other.scalar"] = quarters({}, 7.5F);
  all["other.empty"] = quarters({0, 3}, 0);
  // The upper half of a float is a bfloat16; that of an integer of up to 8 bits is exact.
  all["other.half"] = make("bfloat16", {3, 3}, [](int64_t i) {
    return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(i)) >> 16);
  });
  all["other.eighth"] =
      make("float8_e4m3fn", {2, 7}, [](int64_t i) { return static_cast<uint8_t>(16 + i); });
  all["other.count"] = make("int64", {4}, [](int64_t i) { return (int64_t{1} << 40) - i; });
  all["other.mask"] = make("bool", {6}, [](int64_t i) { return static_cast<uint8_t>(i % 3 == 0); });
  return all;
}

const char* const kText = R"({"step": 12, "name": "é"})";

std::string all_bytes() {
  std::string bytes;
  for (int i = 0; i < 256; ++i) {
    bytes += static_cast<char>(i);
  }
  return bytes;
}

// PyTorch saves the parts of a dict as entries of their own, so that only ours has this one.
DcpValue dict_value() {
  return {DcpValue::Dict{{{std::string("key")}, {DcpValue::List{{int64_t{-3}}}}}}};
}

DcpValue list_value() {
  return {
      DcpValue::List{{int64_t{1} << 40}, {-2.5}, {true}, {DcpValue::None{}}, {std::string("key")}}};
}

}  // namespace

void write_dcp_sample(const std::filesystem::path& folder, int ranks) {
  std::vector<std::unique_ptr<DcpFileWriter>> files;
  for (int r = 0; r < ranks; ++r) {
    files.push_back(
        std::make_unique<DcpFileWriter>(folder, "__" + std::to_string(r) + "_0.distcp"));
  }
  DcpIndex index;
  for (const auto& [name, entry] : entries()) {
    DcpTensor tensor = {entry.type, entry.sizes, {}};
    const int64_t numel = numel_of(entry.sizes);
    int64_t at = 0;
    for (int64_t r = 0; r < ranks; ++r) {
      for (const DcpBox& box :
           boxes_of_range(entry.sizes, numel * r / ranks, numel * (r + 1) / ranks)) {
        const auto* data = entry.bytes.data() + at * entry.type->bytes;
        tensor.chunks.push_back(
            {box, files[static_cast<size_t>(r)]->add_tensor(*entry.type, box.sizes, data)});
        at += box.numel();
      }
    }
    index.tensors[name] = tensor;
  }
  index.values["other.text"] = files[0]->add_value({std::string(kText)});
  index.values["other.bytes"] = files[0]->add_value({DcpValue::Bytes{all_bytes()}});
  index.values["other.dict"] = files[0]->add_value(dict_value());
  index.values["other.list"] = files[0]->add_value(list_value());
  for (auto& file : files) {
    file->close();
  }
  write_file(folder / kDcpIndexFile, dcp_index_bytes(index));
}

std::vector<std::string> differences_from_dcp_sample(const std::filesystem::path& folder) {
  std::vector<std::string> differences;
  const DcpReader reader(folder);
  for (const auto& [name, entry] : entries()) {
    const auto found = reader.index().tensors.find(name);
    if (found == reader.index().tensors.end()) {
      differences.push_back(name + " is missing");
      continue;
    }
    if (found->second.type != entry.type || found->second.sizes != entry.sizes) {
      differences.push_back(name + " has another type or other sizes");
      continue;
    }
    std::vector<std::byte> bytes(entry.bytes.size());
    reader.read(name, bytes.data());
    if (bytes != entry.bytes) {
      differences.push_back(name + " has other numbers");
    }
  }
  const auto compare = [&](const std::string& name, const auto& expected) {
    try {
      const DcpValue value = reader.value(name);
      using Expected = std::decay_t<decltype(expected)>;
      const auto* held = std::get_if<Expected>(&value.value);
      if (held == nullptr) {
        differences.push_back(name + " is of another type");
      } else if constexpr (std::is_same_v<Expected, DcpValue::Bytes>) {
        if (held->data != expected.data) {
          differences.push_back(name + " has other bytes");
        }
      } else if (*held != expected) {
        differences.push_back(name + " has another text");
      }
    } catch (const Error& error) {
      differences.push_back(error.message());
    }
  };
  compare("other.text", std::string(kText));
  compare("other.bytes", DcpValue::Bytes{all_bytes()});
  try {
    const auto value = reader.value("other.list");
    const auto& list = std::get<DcpValue::List>(value.value);
    if (list.size() != 5 || std::get<int64_t>(list[0].value) != int64_t{1} << 40 ||
        std::get<double>(list[1].value) != -2.5 || !std::get<bool>(list[2].value) ||
        list[3].value.index() != 0 || std::get<std::string>(list[4].value) != "key") {
      differences.emplace_back("other.list holds something else");
    }
  } catch (const std::exception& error) {
    differences.push_back(std::string("other.list: ") + error.what());
  }
  return differences;
}

}  // namespace limbeck::testing
