// SPDX-License-Identifier: Apache-2.0
// The stage that loads what `plugins` lists.
#include <algorithm>
#include <utility>

#include "core/base/text.hpp"
#include "core/manifest/draft.hpp"
#include "core/manifest/option_table.hpp"

namespace limbeck {
namespace {

constexpr const char* kExpected = "a name, a path or { path = \"...\", sha256 = \"...\" }";

bool is_sha256(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
}

// The text of a member of a plugin's table; empty when it is missing or wrong, which is reported.
std::string member_text(const Node& table, const char* name, const std::string& key, Draft& draft) {
  const Node* member = table.find(name);
  if (member == nullptr) {
    return "";
  }
  if (member->text() == nullptr) {
    draft.diagnostics.error(member->at,
                            cat(key, ".", name, ": expected a text, got ", describe(*member)));
    return "";
  }
  return *member->text();
}

void check_members(const Node& table, const std::string& key, Draft& draft) {
  for (const auto& member : *table.table()) {
    if (member.key != "path" && member.key != "sha256") {
      draft.diagnostics.error(member.key_at, cat("unknown key \"", key, ".", member.key, "\""),
                              "known keys: path, sha256");
    }
  }
}

PluginRequest read_request(const Node& entry, const std::string& key, Draft& draft) {
  PluginRequest request;
  request.at = entry.at;
  if (const std::string* name = entry.text()) {
    request.name = *name;
  } else if (entry.table() != nullptr) {
    check_members(entry, key, draft);
    request.name = member_text(entry, "path", key, draft);
    request.sha256 = member_text(entry, "sha256", key, draft);
  }
  if (request.name.empty()) {
    draft.diagnostics.error(entry.at,
                            cat(key, ": expected ", kExpected, ", got ", describe(entry)));
  } else if (!request.sha256.empty() && !is_sha256(request.sha256)) {
    draft.diagnostics.error(entry.at, cat(key, ".sha256: expected 64 hexadecimal digits, got \"",
                                          request.sha256, "\""));
    request.name.clear();
  }
  return request;
}

// A name stays a name; a path must mean the same when the resolved manifest lies elsewhere.
std::string portable_name(const std::string& name, const std::filesystem::path& folder) {
  const bool is_path = name.find('/') != std::string::npos || name.ends_with(".so");
  return is_path ? (folder / name).lexically_normal().string() : name;
}

void load_one(const Node& entry, const std::string& key, Draft& draft) {
  const PluginRequest request = read_request(entry, key, draft);
  if (request.name.empty()) {
    draft.has_all_components = false;
    return;
  }
  Diagnostics loading;
  draft.registry->load(request, draft.folder, loading);
  for (const auto& item : loading.items()) {
    if (item.is_error) {
      draft.diagnostics.error(item.at, item.message, item.hint);
      draft.has_all_components = false;
    } else {
      draft.diagnostics.warn(item.at, item.message, item.hint);
    }
  }
  draft.plugins.push_back({portable_name(request.name, draft.folder), request.sha256});
}

}  // namespace

void load_plugins(Draft& draft) {
  const Node* plugins = draft.root.find("plugins");
  if (plugins == nullptr) {
    draft.diagnostics.error(draft.file_position(), "missing key \"plugins\": a list of plugins",
                            "every method, network and data set is in a plugin: plugins = [...]");
    draft.has_all_components = false;
    return;
  }
  if (plugins->list() == nullptr) {
    draft.diagnostics.error(
        plugins->at, cat("plugins: expected a list of plugins, got ", describe(*plugins)),
        plugins->text() == nullptr ? "" : cat("write [\"", *plugins->text(), "\"]"));
    draft.has_all_components = false;
    return;
  }
  size_t index = 0;
  for (const auto& entry : *plugins->list()) {
    load_one(entry, cat("plugins[", index++, "]"), draft);
  }
}

}  // namespace limbeck
