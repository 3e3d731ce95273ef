// SPDX-License-Identifier: Apache-2.0
#include "core/weights/adapters.hpp"

#include <algorithm>
#include <cmath>
#include <regex>

#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/files.hpp"
#include "core/base/text.hpp"
#include "core/weights/strict_json.hpp"

namespace limbeck {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAll = "all-linear";

bool is_or_ends_with(const std::string& layer, const std::string& name) {
  return layer == name || layer.ends_with("." + name);
}

bool is_any_of(const std::string& layer, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(),
                     [&](const auto& name) { return is_or_ends_with(layer, name); });
}

bool matches(const std::string& text, const std::string& pattern) {
  return std::regex_match(text, std::regex(pattern));
}

template <class T>
T by_pattern(const std::vector<std::pair<std::string, T>>& patterns,
             const std::string& layer,
             T otherwise) {
  for (const auto& [pattern, value] : patterns) {
    if (matches(layer, "(.*\\.)?(" + pattern + ")")) {
      return value;
    }
  }
  return otherwise;
}

class ConfigReader {
 public:
  ConfigReader(const std::string& text, const fs::path& path)
      : path_(path), json_(parse_strict(text, path, "its text")) {
    if (!json_.is_object()) {
      fail("it is no JSON object");
    }
    in_order_ = nlohmann::ordered_json::parse(text);
  }

  AdapterConfig read() const {
    if (const auto type = text("peft_type"); type != "LORA") {
      fail(cat("\"peft_type\" is \"", type, "\", and limbeck has LORA only"));
    }
    refuse_others();
    AdapterConfig config;
    config.rank = positive<int64_t>("r", member("r"));
    config.alpha = positive<double>("lora_alpha", member("lora_alpha"));
    config.uses_rslora = json_.value("use_rslora", false);
    read_targets(config);
    config.rank_pattern = patterns<int64_t>("rank_pattern");
    config.alpha_pattern = patterns<double>("alpha_pattern");
    return config;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(Fault::kData, cat(path_.string(), ": ", what));
  }

  bool has(const char* name) const {
    const auto found = json_.find(name);
    return found != json_.end() && !found->is_null();
  }

  const nlohmann::json& member(const char* name) const {
    if (!has(name)) {
      fail(cat("it has no \"", name, "\""));
    }
    return json_.at(name);
  }

  std::string text(const char* name) const {
    const auto& value = member(name);
    if (!value.is_string()) {
      fail(cat("\"", name, "\" is no text"));
    }
    return value.get<std::string>();
  }

  template <class T>
  T positive(const std::string& name, const nlohmann::json& value) const {
    const bool fits = std::is_integral_v<T> ? value.is_number_integer() : value.is_number();
    if (!fits || !(value.get<double>() > 0)) {
      fail(cat("\"", name, "\" is no positive number"));
    }
    return value.get<T>();
  }

  // Options that change what is computed, with the one value that limbeck computes.
  void refuse_others() const {
    const std::pair<const char*, nlohmann::json> known[] = {
        {"use_dora", false},
        {"bias", "none"},
        {"lora_bias", false},
        {"fan_in_fan_out", false},
        {"use_qalora", false},
        {"modules_to_save", nlohmann::json::array()},
        {"layers_to_transform", nullptr},
        {"layers_pattern", nullptr},
        {"layer_replication", nullptr},
        {"trainable_token_indices", nullptr},
        {"target_parameters", nullptr},
        {"megatron_config", nullptr}};
    for (const auto& [name, value] : known) {
      if (has(name) && json_.at(name) != value && !json_.at(name).empty()) {
        fail(cat("\"", name, "\" is ", json_.at(name).dump(), ", which limbeck does not compute"));
      }
    }
  }

  void check_pattern(const std::string& name, const std::string& pattern) const {
    try {
      const std::regex tried(pattern);
    } catch (const std::regex_error& error) {
      fail(cat("\"", name, "\" has '", pattern,
               "', which is no regular expression: ", error.what()));
    }
  }

  std::vector<std::string> names(const char* name) const {
    std::vector<std::string> list;
    for (const auto& item : json_.at(name)) {
      if (!item.is_string()) {
        fail(cat("\"", name, "\" is no list of names"));
      }
      list.push_back(item.get<std::string>());
    }
    return list;
  }

  void read_targets(AdapterConfig& config) const {
    const auto& targets = member("target_modules");
    if (targets.is_string() && targets != kAll) {
      config.target_pattern = targets.get<std::string>();
      check_pattern("target_modules", config.target_pattern);
    } else if (targets.is_string()) {
      config.targets = {std::string(kAll)};
    } else if (targets.is_array() && !targets.empty()) {
      config.targets = names("target_modules");
    } else {
      fail("\"target_modules\" is neither names nor a pattern");
    }
    if (has("exclude_modules")) {
      if (!json_.at("exclude_modules").is_array()) {
        fail("\"exclude_modules\" is no list of names");
      }
      config.excluded = names("exclude_modules");
    }
  }

  template <class T>
  std::vector<std::pair<std::string, T>> patterns(const char* name) const {
    std::vector<std::pair<std::string, T>> list;
    if (has(name)) {
      if (!json_.at(name).is_object()) {
        fail(cat("\"", name, "\" is no object"));
      }
      for (const auto& [pattern, value] : in_order_.at(name).items()) {
        check_pattern(name, pattern);
        list.emplace_back(pattern, positive<T>(cat(name, ".", pattern), value));
      }
    }
    return list;
  }

  fs::path path_;
  nlohmann::json json_;
  nlohmann::ordered_json in_order_;  // the first pattern that fits decides
};

}  // namespace

bool AdapterConfig::selects(const std::string& layer) const {
  const bool is_target = !target_pattern.empty() ? matches(layer, target_pattern)
                                                 : targets == std::vector{std::string(kAll)} ||
                                                       is_any_of(layer, targets);
  return is_target && !is_any_of(layer, excluded);
}

int64_t AdapterConfig::rank_of(const std::string& layer) const {
  return by_pattern(rank_pattern, layer, rank);
}

double AdapterConfig::scale_of(const std::string& layer) const {
  const auto r = static_cast<double>(rank_of(layer));
  return by_pattern(alpha_pattern, layer, alpha) / (uses_rslora ? std::sqrt(r) : r);
}

std::string AdapterConfig::to_json(const std::string& base) const {
  using Json = nlohmann::ordered_json;
  Json ranks = Json::object();
  for (const auto& [pattern, value] : rank_pattern) {
    ranks[pattern] = value;
  }
  Json alphas = Json::object();
  for (const auto& [pattern, value] : alpha_pattern) {
    alphas[pattern] = value;
  }
  const bool is_all = targets == std::vector{std::string(kAll)};
  const Json json = {{"alpha_pattern", alphas},
                     {"auto_mapping", nullptr},
                     {"base_model_name_or_path", base.empty() ? Json() : Json(base)},
                     {"bias", "none"},
                     {"exclude_modules", excluded.empty() ? Json() : Json(excluded)},
                     {"fan_in_fan_out", false},
                     {"inference_mode", true},
                     {"init_lora_weights", true},
                     {"layers_pattern", nullptr},
                     {"layers_to_transform", nullptr},
                     {"lora_alpha", alpha},
                     {"lora_dropout", 0.0},
                     {"modules_to_save", nullptr},
                     {"peft_type", "LORA"},
                     {"r", rank},
                     {"rank_pattern", ranks},
                     {"revision", nullptr},
                     {"target_modules", !target_pattern.empty() ? Json(target_pattern)
                                        : is_all                ? Json(kAll)
                                                                : Json(targets)},
                     {"task_type", nullptr},
                     {"use_dora", false},
                     {"use_rslora", uses_rslora}};
  return json.dump(2) + "\n";
}

bool is_adapter_folder(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kAdapterConfigFile, ignored);
}

AdapterConfig read_adapter_config(const fs::path& folder) {
  std::error_code ignored;
  if (!is_adapter_folder(folder)) {
    const bool is_pipeline_file = fs::exists(folder / "pytorch_lora_weights.safetensors", ignored);
    throw Error(Fault::kData, cat(folder.string(), " has no ", kAdapterConfigFile),
                is_pipeline_file
                    ? "pytorch_lora_weights.safetensors is another format, which a pipeline of "
                      "Diffusers reads; load it there and save it with PEFT's save_pretrained"
                    : "name a folder that PEFT's save_pretrained wrote, one for each part");
  }
  if (!fs::exists(folder / kAdapterWeightsFile, ignored)) {
    throw Error(
        Fault::kData, cat(folder.string(), " has no ", kAdapterWeightsFile),
        fs::exists(folder / "adapter_model.bin", ignored)
            ? "adapter_model.bin is a pickle, which is not read: save it again as safetensors"
            : "");
  }
  return parse_adapter_config(read_file(folder / kAdapterConfigFile), folder / kAdapterConfigFile);
}

AdapterConfig parse_adapter_config(const std::string& text, const fs::path& path) {
  return ConfigReader(text, path).read();
}

}  // namespace limbeck
