// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <iomanip>
#include <iostream>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/weights/safetensors_header.hpp"
#include "core/weights/weight_files.hpp"
#include "host/inspect.hpp"
#include "host/value_stats.hpp"

namespace limbeck::host {
namespace {

namespace fs = std::filesystem;

struct Tensor {
  std::string name;
  const TensorEntry* entry;
  size_t file;
};

struct Weights {
  WeightFiles found;
  std::vector<SafetensorsHeader> headers;  // of each file
  std::vector<Tensor> tensors;             // sorted by name
};

Weights read_weights(const fs::path& path) {
  Weights weights;
  weights.found = find_weight_files(path, "");
  std::vector<std::vector<std::string>> names;
  for (const auto& file : weights.found.files) {
    weights.headers.push_back(read_safetensors_header(file));
    names.emplace_back();
    for (const auto& [name, entry] : weights.headers.back().tensors) {
      names.back().push_back(name);
    }
  }
  for (const auto& [name, file] : place_tensors(weights.found, names)) {
    weights.tensors.push_back({name, &weights.headers[file].tensors.at(name), file});
  }
  return weights;
}

uint64_t numbers_in(const TensorEntry& entry) { return entry.bytes() * 8 / entry.type->bits; }

std::string shape_text(const std::vector<int64_t>& sizes) {
  std::vector<std::string> items;
  for (const int64_t size : sizes) {
    items.push_back(std::to_string(size));
  }
  return "[" + join(items) + "]";
}

void print_totals(const fs::path& path, const Weights& weights) {
  uint64_t numbers = 0, bytes = 0;
  std::map<std::string, std::pair<size_t, uint64_t>> types;
  for (const auto& tensor : weights.tensors) {
    numbers += numbers_in(*tensor.entry);
    bytes += tensor.entry->bytes();
    auto& type = types[tensor.entry->type->name];
    ++type.first;
    type.second += tensor.entry->bytes();
  }
  std::cout << path.string() << ": weights\n  " << weights.tensors.size() << " tensors, "
            << count_text(numbers) << " numbers, " << bytes_text(bytes) << '\n';
  for (const auto& [name, type] : types) {
    std::cout << "  " << name << ": " << type.first << " tensors, " << bytes_text(type.second)
              << '\n';
  }
  if (!weights.found.index.empty()) {
    std::cout << "  index: " << weights.found.index.filename().string() << '\n';
  }
  for (size_t i = 0; i < weights.headers.size(); ++i) {
    std::error_code ignored;
    std::cout << "  file: " << weights.found.files[i].filename().string() << ", "
              << weights.headers[i].tensors.size() << " tensors, "
              << bytes_text(fs::file_size(weights.found.files[i], ignored)) << '\n';
    for (const auto& [key, value] : weights.headers[i].metadata) {
      std::cout << "    " << key << " = " << value << '\n';
    }
  }
}

// ---- values

float from_half(uint16_t half) {
  const int exponent = (half >> 10) & 0x1F;
  const auto fraction = static_cast<float>(half & 0x3FF);
  const float sign = (half & 0x8000) != 0 ? -1.0F : 1.0F;
  if (exponent == 0x1F) {
    return fraction == 0 ? sign * std::numeric_limits<float>::infinity()
                         : std::numeric_limits<float>::quiet_NaN();
  }
  return exponent == 0 ? sign * std::ldexp(fraction, -24)
                       : sign * std::ldexp(1024 + fraction, exponent - 25);
}

template <class T>
T value_at(const char* bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
  return value;
}

// Number i of the bytes; empty for types of which nothing is told.
std::optional<double> number_at(const WeightType& type, const char* bytes, size_t i) {
  const std::string_view name = type.name;
  if (name == "F32") {
    return value_at<float>(bytes, i);
  }
  if (name == "F64") {
    return value_at<double>(bytes, i);
  }
  if (name == "BF16") {
    return std::bit_cast<float>(uint32_t{value_at<uint16_t>(bytes, i)} << 16);
  }
  if (name == "F16") {
    return from_half(value_at<uint16_t>(bytes, i));
  }
  return std::nullopt;
}

std::string stats_of(const fs::path& file, uint64_t offset, const TensorEntry& entry) {
  if (!number_at(*entry.type, "\0\0\0\0\0\0\0\0", 0)) {
    return "";
  }
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  std::vector<char> block(1 << 20);
  ValueStats stats;
  const size_t width = entry.type->bits / 8;
  for (uint64_t done = 0; done < entry.bytes();) {
    const auto wanted = std::min<uint64_t>(block.size(), entry.bytes() - done);
    const auto count = ::pread(descriptor, block.data(), wanted, static_cast<off_t>(offset + done));
    if (count <= 0) {
      const int code = errno;
      ::close(descriptor);
      throw Error(Fault::kData, cat(file.string(), ": cannot read: ",
                                    count == 0 ? "the file has become shorter"
                                               : std::generic_category().message(code)));
    }
    const auto whole = static_cast<size_t>(count) / width;
    for (size_t i = 0; i < whole; ++i) {
      stats.add(*number_at(*entry.type, block.data(), i));
    }
    done += std::max<uint64_t>(whole * width, 1);
  }
  ::close(descriptor);
  return stats.text();
}

// ---- the list of tensors

// "blocks.12.ffn.net.0.weight" -> "blocks.*.ffn.net.*.weight" and {12, 0}.
std::pair<std::string, std::vector<int64_t>> split_numbers(const std::string& name) {
  std::pair<std::string, std::vector<int64_t>> split;
  std::istringstream parts(name);
  for (std::string part; std::getline(parts, part, '.');) {
    const bool is_number =
        !part.empty() && part.size() < 10 &&
        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    split.first += (split.first.empty() ? "" : ".") + (is_number ? std::string("*") : part);
    if (is_number) {
      split.second.push_back(std::stoll(part));
    }
  }
  return split;
}

// Tensors that differ in the first number of their name alone.
struct Row {
  std::string name;
  std::string type;
  std::string shape;
  size_t tensors = 0;
  uint64_t bytes = 0;
  std::string stats;
};

std::vector<Row> gather(const Weights& weights, const InspectOptions& options) {
  std::vector<Row> rows;
  std::map<std::tuple<std::string, std::string, std::string>, size_t> known;
  for (const auto& tensor : weights.tensors) {
    if (tensor.name.find(options.filter) == std::string::npos) {
      continue;
    }
    Row row{tensor.name, tensor.entry->type->name, shape_text(tensor.entry->sizes),
            1,           tensor.entry->bytes(),    ""};
    if (options.has_stats) {
      const auto& file = weights.found.files[tensor.file];
      row.stats = stats_of(file, weights.headers[tensor.file].data_offset + tensor.entry->begin,
                           *tensor.entry);
    } else if (options.filter.empty()) {
      // All blocks of a network are alike: one line tells them all.
      auto [pattern, numbers] = split_numbers(tensor.name);
      if (!numbers.empty()) {
        for (size_t i = 1; i < numbers.size(); ++i) {
          pattern.replace(pattern.find('*', pattern.find('*') + 1), 1, std::to_string(numbers[i]));
        }
        const auto [at, is_new] = known.try_emplace({pattern, row.type, row.shape}, rows.size());
        if (!is_new) {
          auto& first = rows[at->second];
          first.name = pattern;
          ++first.tensors;
          first.bytes += row.bytes;
          continue;
        }
      }
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

void print_tensors(const std::vector<Row>& rows) {
  std::array<size_t, 3> widths{};
  for (const auto& row : rows) {
    widths[0] = std::max(widths[0], row.name.size());
    widths[1] = std::max(widths[1], row.type.size());
    widths[2] = std::max(widths[2], row.shape.size());
  }
  for (const auto& row : rows) {
    std::cout << "  " << std::left << std::setw(static_cast<int>(widths[0])) << row.name << "  "
              << std::setw(static_cast<int>(widths[1])) << row.type << "  "
              << std::setw(static_cast<int>(widths[2])) << row.shape << "  "
              << bytes_text(row.bytes);
    if (row.tensors > 1) {
      std::cout << " in " << row.tensors;
    }
    std::cout << (row.stats.empty() ? "" : "  ") << row.stats << '\n';
  }
}

}  // namespace

void inspect_weights(const fs::path& path, const InspectOptions& options) {
  const auto weights = read_weights(path);
  print_totals(path, weights);
  const auto rows = gather(weights, options);
  if (rows.empty() && !options.filter.empty()) {
    std::vector<std::string> names;
    for (const auto& tensor : weights.tensors) {
      names.push_back(tensor.name);
    }
    throw Error(Fault::kData,
                cat(path.string(), ": no tensor has '", options.filter, "' in its name"),
                cat("names are like ", first_ten(names, ", ")));
  }
  std::cout << '\n';
  print_tensors(rows);
}

}  // namespace limbeck::host
