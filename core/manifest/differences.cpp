// SPDX-License-Identifier: Apache-2.0
#include "core/manifest/differences.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/manifest/toml.hpp"

namespace limbeck {
namespace {

using Leaves = std::map<std::string, std::string>;

constexpr std::array kPlaces = {"run.output_dir", "training.checkpoint.resume_from_checkpoint"};

bool is_list_of_tables(const Node& node) {
  const auto* list = node.list();
  return list != nullptr && !list->empty() &&
         std::all_of(list->begin(), list->end(),
                     [](const Node& item) { return item.table() != nullptr; });
}

void collect(const Node& node, const std::string& path, Leaves& leaves) {
  if (const auto* table = node.table()) {
    for (const auto& member : *table) {
      collect(member.node, path.empty() ? member.key : cat(path, ".", member.key), leaves);
    }
  } else if (is_list_of_tables(node)) {
    for (size_t i = 0; i < node.list()->size(); ++i) {
      collect((*node.list())[i], cat(path, "[", i, "]"), leaves);
    }
  } else {
    leaves.emplace(path, value_text(node));
  }
}

Leaves leaves_of(std::string_view text) {
  Leaves leaves;
  try {
    collect(parse_toml(text, "manifest"), "", leaves);
  } catch (const SyntaxFault& fault) {
    throw Error(Fault::kManifest, cat("a resolved manifest is not TOML: ", fault.what()));
  }
  for (const char* place : kPlaces) {
    leaves.erase(place);
  }
  return leaves;
}

}  // namespace

std::vector<std::string> manifest_differences(std::string_view before, std::string_view after) {
  const auto old_leaves = leaves_of(before);
  const auto new_leaves = leaves_of(after);
  std::vector<std::string> changes;
  for (const auto& [key, value] : old_leaves) {
    const auto found = new_leaves.find(key);
    if (found == new_leaves.end()) {
      changes.push_back(cat(key, ": removed, was ", value));
    } else if (found->second != value) {
      changes.push_back(cat(key, ": ", value, " -> ", found->second));
    }
  }
  for (const auto& [key, value] : new_leaves) {
    if (old_leaves.count(key) == 0) {
      changes.push_back(cat(key, ": new, ", value));
    }
  }
  std::sort(changes.begin(), changes.end());
  return changes;
}

}  // namespace limbeck
