// SPDX-License-Identifier: Apache-2.0
#include "core/train/export.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "core/base/text.hpp"
#include "core/checkpoint/weights.hpp"
#include "core/role/adapters.hpp"

namespace limbeck {
namespace {

nlohmann::ordered_json to_json(const ConfigValue& value) {
  if (const auto* list = std::get_if<ConfigValue::List>(&value.value)) {
    auto json = nlohmann::ordered_json::array();
    for (const auto& item : *list) {
      json.push_back(to_json(item));
    }
    return json;
  }
  if (const auto* table = std::get_if<ConfigValue::Table>(&value.value)) {
    auto json = nlohmann::ordered_json::object();
    for (const auto& [key, item] : *table) {
      json[key] = to_json(item);
    }
    return json;
  }
  if (const auto* boolean = std::get_if<bool>(&value.value)) {
    return *boolean;
  }
  if (const auto* integer = std::get_if<int64_t>(&value.value)) {
    return *integer;
  }
  if (const auto* number = std::get_if<double>(&value.value)) {
    return *number;
  }
  return std::get<std::string>(value.value);
}

std::string text_fact(const Role& role, const char* name) {
  const auto* rows = role.facts().find<TextRows>(name);
  return rows != nullptr && !rows->empty() ? rows->front() : "";
}

std::filesystem::path export_one(const Role& role,
                                 Weights weights,
                                 const std::filesystem::path& folder) {
  if (role.has_adapters()) {
    write_adapters(role, weights, folder);
    return folder;
  }
  NamedTensors tensors;
  role.visit(weights, [&](const std::string& key, const at::Tensor& value) {
    tensors.emplace_back(key, value);
  });
  const auto target = folder / export_folder(role);
  write_weights(target, export_config(role).dump(2) + "\n", tensors);
  verify_weights(target, tensors);
  return folder;
}

}  // namespace

nlohmann::ordered_json export_config(const Role& role) {
  auto json = nlohmann::ordered_json::object();
  const auto class_name = text_fact(role, "export.class");
  json["_class_name"] = class_name.empty() ? role.spec().model.component->name() : class_name;
  // Options that other programs would misread: TOML has no null to give them.
  const auto* omitted = role.facts().find<TextRows>("export.omit");
  for (const auto& [key, value] : role.spec().model.config->table) {
    if (omitted == nullptr || std::find(omitted->begin(), omitted->end(), key) == omitted->end()) {
      json[key] = to_json(value);
    }
  }
  return json;
}

std::string export_folder(const Role& role) { return text_fact(role, "export.folder"); }

std::vector<std::filesystem::path> export_roles(const RoleSet& roles,
                                                const std::filesystem::path& output_dir) {
  std::vector<std::filesystem::path> folders;
  for (const auto& role : roles) {
    if (!role->is_trained()) {
      continue;
    }
    const auto folder = output_dir / "export" / role->name();
    folders.push_back(export_one(*role, Weights::kLive, folder));
    if (role->has_average()) {
      auto averaged = folder;
      averaged += "-ema";
      folders.push_back(export_one(*role, Weights::kAverage, averaged));
    }
  }
  return folders;
}

}  // namespace limbeck
