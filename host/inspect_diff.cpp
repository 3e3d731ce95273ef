// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <system_error>
#include <vector>

#include "core/base/text.hpp"
#include "core/dcp/reader.hpp"
#include "core/transfer/compare.hpp"
#include "core/weights/weight_files.hpp"
#include "host/inspect.hpp"

namespace limbeck::host {
namespace {

namespace fs = std::filesystem;

// Name -> value as text; empty optional: no values are kept there.
std::optional<std::map<std::string, std::string>> values_of(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(folder / kDcpIndexFile, ignored)) {
    return std::nullopt;
  }
  const DcpReader reader(folder);
  std::map<std::string, std::string> values;
  for (const auto& [name, item] : reader.index().values) {
    values.emplace(name, value_text(reader.value(name)));
  }
  return values;
}

void print_names(const fs::path& path, const char* what, const std::vector<std::string>& names) {
  if (!names.empty()) {
    std::cout << "  only in " << path.string() << ": " << names.size() << ' ' << what << "\n    "
              << first_ten(names, "\n    ") << '\n';
  }
}

void print_lines(const std::string& title, const std::vector<std::string>& lines) {
  if (!lines.empty()) {
    std::cout << "  " << title << ": " << lines.size() << "\n    " << first_ten(lines, "\n    ")
              << '\n';
  }
}

void print_tensor_differences(const fs::path& first,
                              const fs::path& second,
                              const TensorDifferences& all) {
  print_names(first, "tensors", all.only_first);
  print_names(second, "tensors", all.only_second);
  std::vector<std::string> lines;
  for (const auto& one : all.shapes) {
    lines.push_back(
        cat(one.name, ": ", shape_text(one.first.sizes), " and ", shape_text(one.second.sizes)));
  }
  print_lines("of another shape", lines);
  lines.clear();
  for (const auto& one : all.types) {
    lines.push_back(cat(one.name, ": ", one.first.type->name, " and ", one.second.type->name));
  }
  print_lines("of another type", lines);
  lines.clear();
  for (const auto& one : all.values) {
    lines.push_back(cat(one.name, ": ", count_text(one.count), " of ",
                        count_text(one.first.numel()), " numbers, by at most ",
                        shortest(one.max_abs),
                        one.nans > 0 ? cat(", ", one.nans, " not a number on one side") : ""));
  }
  print_lines("of other values", lines);
}

// Of two checkpoints.
bool print_value_differences(const fs::path& first, const fs::path& second) {
  const auto left = values_of(first), right = values_of(second);
  if (!left || !right) {
    return false;
  }
  std::vector<std::string> only_left, only_right, lines;
  for (const auto& [name, text] : *left) {
    const auto found = right->find(name);
    if (found == right->end()) {
      only_left.push_back(name);
    } else if (found->second != text) {
      lines.push_back(cat(name, ": ", text, " and ", found->second));
    }
  }
  for (const auto& [name, text] : *right) {
    if (left->count(name) == 0) {
      only_right.push_back(name);
    }
  }
  print_names(first, "values", only_left);
  print_names(second, "values", only_right);
  print_lines("values that are no tensors", lines);
  return !only_left.empty() || !only_right.empty() || !lines.empty();
}

}  // namespace

bool print_differences(const fs::path& first, const fs::path& second, const std::string& prefix) {
  const auto left = open_tensor_files(first), right = open_tensor_files(second);
  std::cout << first.string() << " and " << second.string() << '\n';
  const auto all = compare_tensors(*left, *right, prefix);
  print_tensor_differences(first, second, all);
  const bool values_differ = prefix.empty() && print_value_differences(left->path(), right->path());
  const bool differ = !all.is_empty() || values_differ;
  std::cout << "  " << all.compared << " tensors were compared: "
            << (differ ? cat(all.compared - all.values.size(), " have equal values")
                       : std::string("all are equal"))
            << '\n';
  return differ;
}

}  // namespace limbeck::host
