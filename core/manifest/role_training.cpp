// SPDX-License-Identifier: Apache-2.0
// The stage that gives each role its optimizer, average and recompute: the role's own keys over
// those of all roles.
#include <utility>

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
  draft.settled[key] = std::move(values);
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
    settle_recompute(draft, role);
  }
}

}  // namespace limbeck
