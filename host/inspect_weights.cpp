// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <iomanip>
#include <iostream>
#include <map>
#include <sstream>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/transfer/numbers.hpp"
#include "core/transfer/tensor_files.hpp"
#include "core/weights/weight_files.hpp"
#include "host/inspect.hpp"
#include "host/value_stats.hpp"

namespace limbeck::host {
namespace {

namespace fs = std::filesystem;

std::string stats_of(const TensorFiles& files, const std::string& name, const TensorShape& shape) {
  if (!is_floating(*shape.type)) {
    return "";
  }
  ValueStats stats;
  read_blocks(files, name, [&](const std::byte* data, uint64_t, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes * 8 / shape.type->bits; ++i) {
      stats.add(number_at(*shape.type, data, i));
    }
  });
  return stats.text();
}

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

std::vector<Row> gather(const TensorFiles& files, const InspectOptions& options) {
  std::vector<Row> rows;
  std::map<std::tuple<std::string, std::string, std::string>, size_t> known;
  for (const auto& [name, shape] : files.tensors()) {
    if (name.find(options.filter) == std::string::npos) {
      continue;
    }
    Row row{name, shape.type->name, shape_text(shape.sizes), 1, shape.bytes(), ""};
    if (options.has_stats) {
      row.stats = stats_of(files, name, shape);
    } else if (options.filter.empty()) {
      // All blocks of a network are alike: one line tells them all.
      auto [pattern, numbers] = split_numbers(name);
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

void print_rows(const std::vector<Row>& rows) {
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

void print_files(const WeightFiles& found) {
  if (!found.index.empty()) {
    std::cout << "  index: " << found.index.filename().string() << '\n';
  }
  for (const auto& file : found.files) {
    std::error_code ignored;
    const auto header = read_safetensors_header(file);
    std::cout << "  file: " << file.filename().string() << ", " << header.tensors.size()
              << " tensors, " << bytes_text(fs::file_size(file, ignored)) << '\n';
    for (const auto& [key, value] : header.metadata) {
      std::cout << "    " << key << " = " << value << '\n';
    }
  }
}

}  // namespace

void print_totals(const TensorFiles& files) {
  uint64_t numbers = 0, bytes = 0;
  std::map<std::string, std::pair<size_t, uint64_t>> types;
  for (const auto& [name, shape] : files.tensors()) {
    numbers += shape.numel();
    bytes += shape.bytes();
    auto& type = types[shape.type->name];
    ++type.first;
    type.second += shape.bytes();
  }
  std::cout << "  " << files.tensors().size() << " tensors, " << count_text(numbers) << " numbers, "
            << bytes_text(bytes) << '\n';
  for (const auto& [name, type] : types) {
    std::cout << "  " << name << ": " << type.first << " tensors, " << bytes_text(type.second)
              << '\n';
  }
}

void print_tensors(const TensorFiles& files, const InspectOptions& options) {
  const auto rows = gather(files, options);
  if (rows.empty() && !options.filter.empty()) {
    std::vector<std::string> names;
    for (const auto& [name, shape] : files.tensors()) {
      names.push_back(name);
    }
    throw Error(Fault::kData,
                cat(files.path().string(), ": no tensor has '", options.filter, "' in its name"),
                cat("names are like ", first_ten(names, ", ")));
  }
  std::cout << '\n';
  print_rows(rows);
}

void inspect_weights(const fs::path& path, const InspectOptions& options) {
  const auto found = find_weight_files(path, "");
  const auto files = open_weights(found, path);
  std::cout << path.string() << ": weights\n";
  print_totals(*files);
  print_files(found);
  print_tensors(*files, options);
}

}  // namespace limbeck::host
