// SPDX-License-Identifier: Apache-2.0
// The stage that gives each role its optimizer, average and recompute: the role's own keys over
// those of all roles.
#include <utility>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/manifest/component_table.hpp"
#include "core/manifest/host_values.hpp"
#include "core/manifest/tables.hpp"

namespace limbeck {
namespace {

const ConfigValue::Table* find_host(const Draft& draft, const std::string& key) {
  const auto found = draft.host.find(key);
  return found == draft.host.end() ? nullptr : &found->second;
}

// Checks the inner table `name` of a role. False: there is none.
bool read_inner(Draft& draft,
                const RoleSpec& role,
                const char* name,
                const std::vector<lb_option>& options) {
  const Node* table = find_path(draft.root, join_key(role.model.key, name));
  if (table == nullptr || table->table() == nullptr) {
    return false;
  }
  const std::string key = join_key(role.model.key, name);
  draft.host[key] = check_table(*table, options, key, draft.scope());
  if (!role.is_trained && draft.has_all_components) {
    draft.diagnostics.error(table->at,
                            cat(key,
                                ": this role is not trained, so that the table "
                                "has no effect"),
                            "remove it");
  }
  return true;
}

// ---- optimizer ----

void overlay(ConfigValue::Table& base, const ConfigValue::Table& own) {
  for (const auto& [name, value] : own) {
    bool is_new = true;
    for (auto& [other, old] : base) {
      if (other == name) {
        old = value;
        is_new = false;
      }
    }
    if (is_new) {
      base.push_back({name, value});
    }
  }
}

OptimizerSpec to_optimizer(const HostValues& values) {
  OptimizerSpec spec;
  spec.learning_rate = values.find("learning_rate") ? values.number("learning_rate") : 0.0;
  const auto& betas = std::get<ConfigValue::List>(values.find("betas")->value);
  if (betas.size() == 2) {
    spec.beta1 = std::get<double>(betas[0].value);
    spec.beta2 = std::get<double>(betas[1].value);
  }
  spec.eps = values.number("eps");
  spec.weight_decay = values.number("weight_decay");
  spec.decays_flagged = values.text("no_decay") == "none";
  spec.lr_scheduler = values.text("lr_scheduler");
  spec.lr_warmup_steps = values.integer("lr_warmup_steps");
  spec.lr_num_cycles = values.integer("lr_num_cycles");
  spec.lr_power = values.number("lr_power");
  spec.min_lr_ratio = values.number("min_lr_ratio");
  spec.step_rules = values.text("step_rules");
  return spec;
}

void settle_optimizer(Draft& draft, RoleSpec& role) {
  auto values = draft.host["training.optimizer"];
  if (read_inner(draft, role, "optimizer", all_optional(optimizer_options()))) {
    overlay(values, draft.host[role.model.key + ".optimizer"]);
  }
  role.optimizer = to_optimizer(HostValues(values));
  draft.settled[role.model.key + ".optimizer"] = std::move(values);
}

// ---- average ----

EmaWarmup warmup_of(const std::string& name) {
  return name == "ratio"   ? EmaWarmup::kRatio
         : name == "power" ? EmaWarmup::kPower
         : name == "ramp"  ? EmaWarmup::kRamp
                           : EmaWarmup::kConstant;
}

// What a role's own table and [callbacks.ema] call the same.
constexpr std::pair<const char*, const char*> kEmaNames[] = {
    {"decay", "decay"}, {"warmup", "warmup"}, {"start_step", "start_iter"}};

// Values that the role's table does not give are those of [callbacks.ema].
void inherit_ema(ConfigValue::Table& own, const HostValues& shared) {
  for (const auto& [own_name, shared_name] : kEmaNames) {
    for (auto& [name, value] : own) {
      if (name == own_name && !value.is_given && shared.is_given(shared_name)) {
        value = *shared.find(shared_name);
      }
    }
  }
}

EmaSpec to_ema(const HostValues& values) {
  EmaSpec spec;
  spec.decay = values.number("decay");
  spec.warmup = warmup_of(values.text("warmup"));
  spec.start_step = values.integer("start_step");
  spec.initial_decay = values.number("initial_decay");
  spec.ramp = values.number("ramp");
  spec.flat_steps = values.integer("flat_steps");
  return spec;
}

// [callbacks.ema] is another name for the table of every trained role: two values are a conflict.
void check_same_ema(Draft& draft, const std::string& key) {
  for (const auto& [own_name, other_name] : kEmaNames) {
    const std::string own_key = join_key(key, own_name);
    const std::string other_key = join_key("callbacks.ema", other_name);
    const Node* own = find_path(draft.root, own_key);
    const Node* other = find_path(draft.root, other_key);
    if (own != nullptr && other != nullptr && !is_same_value(*own, *other)) {
      draft.diagnostics.error(own->at,
                              cat("\"", own_key, "\" and \"", other_key,
                                  "\" are two names of one setting and have different values: ",
                                  describe(*own), " and ", describe(*other)),
                              "keep one of them");
    }
  }
}

// The defaults, which a resolved manifest has, are no fault.
void check_ramp(Draft& draft,
                const std::string& key,
                const EmaSpec& spec,
                const HostValues& given) {
  if (spec.warmup == EmaWarmup::kRamp) {
    return;
  }
  const EmaSpec standard;
  const std::pair<const char*, bool> changed[] = {
      {"initial_decay", spec.initial_decay != standard.initial_decay},
      {"ramp", spec.ramp != standard.ramp},
      {"flat_steps", spec.flat_steps != standard.flat_steps}};
  for (const auto& [name, is_changed] : changed) {
    if (is_changed) {
      draft.diagnostics.error(given.position(name),
                              cat(key, ".", name, " has no effect without warmup = \"ramp\""),
                              "set the warmup, or remove it");
    }
  }
}

void settle_ema(Draft& draft, RoleSpec& role) {
  const std::string key = role.model.key + ".ema";
  const auto* callback = find_host(draft, "callbacks.ema");
  const bool has_own = read_inner(draft, role, "ema", ema_options());
  if (!role.is_trained || (callback == nullptr && !has_own)) {
    return;
  }
  const Node empty{Node::Table{}, role.at};
  auto values = has_own ? draft.host[key] : check_table(empty, ema_options(), key, draft.scope());
  if (callback != nullptr) {
    if (has_own) {
      check_same_ema(draft, key);
    }
    inherit_ema(values, HostValues(*callback));
  }
  role.ema = to_ema(HostValues(values));
  check_ramp(draft, key, *role.ema, HostValues(values));
  draft.settled[key] = std::move(values);
}

// ---- adapters ----

struct GivenLora {
  bool is_enabled = false;
  bool has_table = false;
  ConfigValue::Table values;

  bool has(const char* name) const { return has_table && HostValues(values).is_given(name); }
};

std::vector<std::string> texts(const ConfigValue* value) {
  std::vector<std::string> list;
  if (value != nullptr) {
    for (const auto& item : std::get<ConfigValue::List>(value->value)) {
      list.push_back(std::get<std::string>(item.value));
    }
  }
  return list;
}

// What a manifest says of loaded adapters must be what they are.
void check_loaded(Draft& draft, const GivenLora& given, const AdapterSpec& adapter) {
  const auto check = [&](const char* name, double asked, double found) {
    if (asked != found) {
      draft.diagnostics.error(HostValues(given.values).position(name),
                              cat("lora.", name, " is ", shortest(asked), ", the adapters in ",
                                  adapter.folder.string(), " have ", shortest(found)),
                              "leave it out: they say it themselves");
    }
  };
  if (given.has("rank")) {
    check("rank", static_cast<double>(HostValues(given.values).integer("rank")),
          static_cast<double>(adapter.config.rank));
  }
  if (given.has("alpha")) {
    check("alpha", HostValues(given.values).number("alpha"), adapter.config.alpha);
  }
  const HostValues values(given.values);
  const std::pair<const char*, bool> changed[] = {
      {"target_modules", given.has("target_modules")},
      {"use_rslora", values.boolean("use_rslora") && !adapter.config.uses_rslora},
      {"init", values.text("init") != "kaiming_uniform"}};
  for (const auto& [name, is_changed] : changed) {
    if (is_changed) {
      draft.diagnostics.error(values.position(name),
                              cat("lora.", name, " has no effect: the adapters are loaded from ",
                                  adapter.folder.string()),
                              "remove it");
    }
  }
}

void load_adapter_specs(Draft& draft, RoleSpec& role, const GivenLora& given) {
  const HostValues host(draft.host[role.model.key]);
  for (const auto& folder : texts(host.find("adapters"))) {
    try {
      role.adapters.push_back({read_adapter_config(folder), folder});
      if (given.has_table) {
        check_loaded(draft, given, role.adapters.back());
      }
    } catch (const Error& error) {
      if (draft.needs_files) {
        draft.diagnostics.error(host.position("adapters"),
                                cat(role.model.key, ".adapters: ", error.message()), error.hint());
      }
    }
  }
}

void make_fresh_spec(Draft& draft, RoleSpec& role, const GivenLora& given) {
  const HostValues values(given.values);
  if (!given.has("rank")) {
    draft.diagnostics.error(values.position("enable"), cat(role.model.key, ".lora.rank is missing"),
                            "say how large the adapters are: 8 to 64 are usual");
    return;
  }
  AdapterSpec adapter;
  adapter.config.rank = values.integer("rank");
  adapter.config.alpha =
      given.has("alpha") ? values.number("alpha") : static_cast<double>(adapter.config.rank);
  adapter.config.uses_rslora = values.boolean("use_rslora");
  adapter.config.targets = texts(values.find("target_modules"));
  role.adapters.push_back(std::move(adapter));
  role.adapter_init =
      values.text("init") == "gaussian" ? AdapterInit::kGaussian : AdapterInit::kKaimingUniform;
}

void settle_lora(Draft& draft, RoleSpec& role) {
  const std::string key = role.model.key + ".lora";
  GivenLora given;
  given.has_table = read_inner(draft, role, "lora", lora_options());
  if (given.has_table) {
    given.values = draft.host[key];
    given.is_enabled = HostValues(given.values).boolean("enable");
    draft.settled[key] = given.values;
  }
  const HostValues host(draft.host[role.model.key]);
  const bool has_folders = host.is_given("adapters");
  if (!given.is_enabled) {
    for (const char* name : {"rank", "alpha", "target_modules"}) {
      if (given.has(name)) {
        draft.diagnostics.error(HostValues(given.values).position(name),
                                cat(key, ".", name, " has no effect without lora.enable"),
                                "set lora.enable = true, or remove the table");
      }
    }
    if (has_folders && role.is_trained) {
      draft.diagnostics.error(host.position("adapters"),
                              cat(role.model.key, ".adapters: the role is trained without lora"),
                              "set lora.enable = true to train the adapters");
    }
  }
  if (has_folders) {
    load_adapter_specs(draft, role, given);
  } else if (given.is_enabled) {
    make_fresh_spec(draft, role, given);
  }
}

// ---- recompute ----

void settle_recompute(Draft& draft, RoleSpec& role) {
  constexpr const char* kKey = "enable_gradient_checkpointing_type";
  const bool is_own = HostValues(draft.host[role.model.key]).find(kKey) != nullptr;
  const std::string table = is_own ? role.model.key : "training.model";
  const HostValues values(draft.host[table]);
  const std::string mode = values.text(kKey);
  role.recompute = mode == "full" ? Recompute::kFull : Recompute::kKeep;
  if (mode == "ops" || mode == "block_skip") {
    draft.diagnostics.error(
        values.position(kKey),
        cat(table, ".", kKey, ": \"", mode, "\" is not available in this version"),
        "use \"none\" or \"full\"");
  }
}

}  // namespace

void settle_training(Draft& draft) {
  for (auto& role : draft.manifest.roles) {
    settle_optimizer(draft, role);
    settle_ema(draft, role);
    settle_lora(draft, role);
    settle_recompute(draft, role);
  }
  // A shadow is the same network with the same adapters.
  for (auto& role : draft.manifest.roles) {
    const auto* of = role.is_shadow ? draft.manifest.role(role.shadow_of) : nullptr;
    if (of != nullptr) {
      role.adapters = of->adapters;
      role.adapter_init = of->adapter_init;
    }
  }
}

}  // namespace limbeck
