// SPDX-License-Identifier: Apache-2.0
#include "core/manifest/weights_config.hpp"

#include <initializer_list>
#include <string>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/files.hpp"
#include "core/base/text.hpp"
#include "core/manifest/component_table.hpp"

namespace limbeck {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

fs::path find_file(const fs::path& folder, std::string_view kind) {
  const char* inner = kind == kVaeKind           ? "vae"
                      : kind == kTextEncoderKind ? "text_encoder"
                                                 : "transformer";
  for (const fs::path& path : {folder / "config.json", folder / inner / "config.json"}) {
    std::error_code ignored;
    if (fs::is_regular_file(path, ignored)) {
      return path;
    }
  }
  return {};
}

Node to_node(const Json& json, const Position& at);

Node::Table to_members(const Json& json, const Position& at) {
  Node::Table members;
  for (const auto& [key, value] : json.items()) {
    if (!value.is_null()) {
      members.push_back({key, at, to_node(value, at)});
    }
  }
  return members;
}

Node to_node(const Json& json, const Position& at) {
  Node node{false, at};
  if (json.is_object()) {
    node.value = to_members(json, at);
  } else if (json.is_array()) {
    auto& items = node.value.emplace<Node::List>();
    for (const auto& item : json) {
      items.push_back(to_node(item, at));
    }
  } else if (json.is_string()) {
    node.value = json.get<std::string>();
  } else if (json.is_boolean()) {
    node.value = json.get<bool>();
  } else if (json.is_number_integer() &&
             (!json.is_number_unsigned() || json.get<uint64_t>() <= INT64_MAX)) {
    node.value = json.get<int64_t>();
  } else if (json.is_number()) {
    node.value = json.get<double>();
  } else {
    node.value = Node::Moment{};  // a null inside a list: no option takes one
  }
  return node;
}

// "[json.exception.parse_error.101] parse error at ..." -> "parse error at ..."
std::string reason_of(const Json::exception& error) {
  const std::string text = error.what();
  const size_t end = text.find("] ");
  return end == std::string::npos ? text : text.substr(end + 2);
}

// The number of the first of these keys; empty: the file has none of them, or is no JSON.
std::optional<double> read_number(const fs::path& path, std::initializer_list<const char*> keys) {
  const Json json = Json::parse(read_file(path), nullptr, false);
  for (const char* key : keys) {
    if (json.is_object() && json.contains(key) && json[key].is_number()) {
      return json[key].get<double>();
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<SavedShift> read_saved_shift(const fs::path& folder) {
  for (const fs::path& root : {folder, folder.parent_path()}) {
    const fs::path path = root / "scheduler" / "scheduler_config.json";
    std::error_code ignored;
    if (fs::is_regular_file(path, ignored)) {
      const auto shift = read_number(path, {"flow_shift", "shift"});
      return shift ? std::optional(SavedShift{path, *shift}) : std::nullopt;
    }
  }
  return std::nullopt;
}

Node read_weights_config(const fs::path& folder, std::string_view kind, Diagnostics& diagnostics) {
  const fs::path path = find_file(folder, kind);
  const Position at{path.string(), 0, 0};
  Node empty{Node::Table{}, at};
  if (path.empty()) {
    return empty;
  }
  try {
    const Json json = Json::parse(read_file(path));
    if (json.is_object()) {
      return to_node(json, at);
    }
    diagnostics.error(at, cat("expected a JSON object, got ", json.type_name()));
  } catch (const Json::exception& error) {
    diagnostics.error(at, "not JSON: " + reason_of(error));
  } catch (const Error& error) {
    diagnostics.error(at, error.message());
  }
  return empty;
}

}  // namespace limbeck
