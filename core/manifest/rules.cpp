// SPDX-License-Identifier: Apache-2.0
// The stage for rules between the values of several tables.
#include <charconv>
#include <set>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/text.hpp"
#include "core/manifest/component_table.hpp"
#include "core/manifest/host_values.hpp"
#include "core/manifest/weights_config.hpp"

namespace limbeck {
namespace {

constexpr const char* kTermsCapability = "limbeck.terms/1";
constexpr double kPolynomialEnd = 1e-7;  // where a polynomial schedule ends

// ---- learning-rate schedules ----

// The optimizer of one role, and where each of its values was written.
class Optimizer {
 public:
  Optimizer(Draft& draft, const RoleSpec& role)
      : spec(role.optimizer),
        role_key_(role.model.key + ".optimizer"),
        own_(draft.host[role_key_]),
        shared_(draft.host["training.optimizer"]) {}

  const OptimizerSpec& spec;

  // Of the table that decides: "models.x.optimizer.lr_power" or "training.optimizer.lr_power".
  std::string key(const char* name) const {
    return join_key(is_own(name) ? role_key_ : kShared, name);
  }
  Position at(const char* name) const { return (is_own(name) ? own_ : shared_).position(name); }
  bool is_given(const char* name) const { return (is_own(name) ? own_ : shared_).is_given(name); }
  bool has(const char* name) const { return is_own(name) || shared_.find(name) != nullptr; }

 private:
  static constexpr const char* kShared = "training.optimizer";

  bool is_own(const char* name) const { return own_.find(name) != nullptr; }

  std::string role_key_;
  HostValues own_;
  HostValues shared_;
};

bool is_decaying(const std::string& schedule) {
  return schedule == "linear" || schedule == "polynomial" || schedule.starts_with("cosine");
}

void check_betas(Draft& draft, const std::string& table) {
  const auto found = draft.host.find(table);
  const auto* betas = found == draft.host.end() ? nullptr : find_value(found->second, "betas");
  if (betas == nullptr) {
    return;
  }
  const size_t count = std::get<ConfigValue::List>(betas->value).size();
  if (count != 2 && betas->is_given && !draft.diagnostics.has_error_at(betas->at)) {
    draft.diagnostics.error(betas->at, cat(table, ".betas: expected two numbers, got ", count));
  }
}

void check_warmup(Draft& draft, const Optimizer& optimizer) {
  const int64_t most = draft.manifest.loop.max_train_steps;
  const int64_t warmup = optimizer.spec.lr_warmup_steps;
  const std::string& schedule = optimizer.spec.lr_scheduler;
  if (most < 1) {
    return;  // reported already
  }
  const bool is_too_long =
      is_decaying(schedule) ? warmup >= most : schedule == "constant_with_warmup" && warmup > most;
  if (is_too_long) {
    draft.diagnostics.error(
        optimizer.at("lr_warmup_steps"),
        cat(optimizer.key("lr_warmup_steps"), ": lr_scheduler \"", schedule, "\" expects ",
            is_decaying(schedule) ? "less than" : "at most",
            " training.loop.max_train_steps, which is ", most, ", got ", warmup));
  }
}

// "1:500,0.1:800,0.01": factors, each with the step before which it holds; the last without.
bool is_step_rules(const std::string& text) {
  const char* at = text.data();
  const char* end = at + text.size();
  for (;;) {
    double factor = 0;
    auto read = std::from_chars(at, end, factor);
    if (read.ec != std::errc() || factor < 0) {
      return false;
    }
    if (read.ptr == end) {
      return true;
    }
    int64_t step = 0;
    if (*read.ptr != ':') {
      return false;
    }
    const auto number = std::from_chars(read.ptr + 1, end, step);
    if (number.ec != std::errc() || step < 1 || number.ptr == end || *number.ptr != ',') {
      return false;
    }
    at = number.ptr + 1;
  }
}

void check_step_rules(Draft& draft, const Optimizer& optimizer) {
  if (optimizer.spec.lr_scheduler != "piecewise_constant" ||
      is_step_rules(optimizer.spec.step_rules)) {
    return;
  }
  draft.diagnostics.error(
      optimizer.at(optimizer.is_given("step_rules") ? "step_rules" : "lr_scheduler"),
      cat(optimizer.key("step_rules"),
          ": lr_scheduler \"piecewise_constant\" expects rules like \"1:500,0.1:800,0.01\", got \"",
          optimizer.spec.step_rules, "\""),
      "factor:step pairs, each factor up to its step, and the factor of the rest");
}

void check_polynomial(Draft& draft, const Optimizer& optimizer) {
  const double rate = optimizer.spec.learning_rate;
  if (optimizer.spec.lr_scheduler == "polynomial" && rate > 0 && rate <= kPolynomialEnd) {
    draft.diagnostics.error(
        optimizer.at("learning_rate"),
        cat(optimizer.key("learning_rate"), ": lr_scheduler \"polynomial\" ends at ",
            shortest(kPolynomialEnd), " and expects more, got ", shortest(rate)));
  }
}

// A key that only other schedules read. A warning: the table is shared by roles.
void warn_unused(Draft& draft, const Optimizer& optimizer) {
  const std::string& schedule = optimizer.spec.lr_scheduler;
  const OptimizerSpec defaults;
  const OptimizerSpec& spec = optimizer.spec;
  const bool has_warmup = schedule != "constant" && schedule != "piecewise_constant";
  const std::tuple<const char*, bool, bool> keys[] = {
      {"lr_warmup_steps", has_warmup, spec.lr_warmup_steps != defaults.lr_warmup_steps},
      {"lr_num_cycles", schedule == "cosine_with_restarts",
       spec.lr_num_cycles != defaults.lr_num_cycles},
      {"lr_power", schedule == "polynomial", spec.lr_power != defaults.lr_power},
      {"min_lr_ratio", schedule == "cosine_with_min_lr",
       spec.min_lr_ratio != defaults.min_lr_ratio},
      {"step_rules", schedule == "piecewise_constant", spec.step_rules != defaults.step_rules},
  };
  for (const auto& [name, is_used, is_changed] : keys) {
    if (!is_used && is_changed && optimizer.is_given(name)) {
      draft.diagnostics.warn(
          optimizer.at(name),
          cat(optimizer.key(name), " has no effect with lr_scheduler \"", schedule, "\""));
    }
  }
}

void check_optimizers(Draft& draft) {
  check_betas(draft, "training.optimizer");
  for (const auto& role : draft.manifest.roles) {
    check_betas(draft, role.model.key + ".optimizer");
    if (!role.is_trained) {
      continue;
    }
    const Optimizer optimizer(draft, role);
    if (!optimizer.has("learning_rate")) {
      draft.diagnostics.error(
          role.at, cat(role.model.key, ": a trained role needs a learning rate"),
          cat("set learning_rate in [training.optimizer] or [", role.model.key, ".optimizer]"));
    }
    check_warmup(draft, optimizer);
    check_step_rules(draft, optimizer);
    check_polynomial(draft, optimizer);
    warn_unused(draft, optimizer);
  }
}

// ---- shift of the noise schedule ----

// The shifts that a run uses, each with the key that says it. A component's own flow_shift takes
// the place of that of [pipeline]; 0 leaves it there.
class Shifts {
 public:
  explicit Shifts(Draft& draft) : pipeline_(draft.host["pipeline"]) {
    const Manifest& manifest = draft.manifest;
    is_shared_used_ = pipeline_.is_given("flow_shift");
    add(manifest.method);
    for (const auto& spec : manifest.prepare) {
      add(spec);
    }
    for (const auto& loss : manifest.losses) {
      add(loss.component);
    }
    for (const auto& callback : manifest.callbacks) {
      add(callback.component);
    }
    if (is_shared_used_) {
      shifts_.push_back({"pipeline.flow_shift", pipeline_.position("flow_shift"),
                         pipeline_.number("flow_shift")});
    }
    for (const auto& role : manifest.roles) {
      if (const auto saved = read_saved_shift(role.init_from)) {
        const std::string file = saved->file.string();
        shifts_.push_back({file, {file, 0, 0}, saved->value});
      }
    }
  }

  void warn_if_different(Diagnostics& diagnostics) const {
    std::vector<std::string> all;
    for (const auto& shift : shifts_) {
      all.push_back(cat(shift.key, " ", shortest(shift.value)));
    }
    for (const auto& shift : shifts_) {
      if (shift.value != shifts_.front().value) {
        diagnostics.warn(shifts_.front().at,
                         cat("different flow_shift values: ", join(all),
                             ": a network is trained with one and sampled with another"),
                         "set flow_shift in [pipeline] alone, to the value of the weights");
        return;
      }
    }
  }

 private:
  struct Shift {
    std::string key;
    Position at;
    double value;
  };

  void add(const ComponentSpec& spec) {
    const ConfigValue* own = spec.config == nullptr ? nullptr : spec.config->find("flow_shift");
    const double* value = own == nullptr ? nullptr : std::get_if<double>(&own->value);
    if (value != nullptr && *value > 0) {
      shifts_.push_back({spec.key + ".flow_shift", own->at, *value});
    }
    is_shared_used_ = is_shared_used_ || (value != nullptr && *value == 0);
  }

  HostValues pipeline_;
  std::vector<Shift> shifts_;
  bool is_shared_used_ = false;
};

// ---- the others ----

void check_losses(Draft& draft) {
  const auto& manifest = draft.manifest;
  const Component* method = manifest.method.component;
  if (method != nullptr && !manifest.losses.empty() && !method->provides(kTermsCapability)) {
    draft.diagnostics.error(manifest.losses.front().component.at,
                            cat("losses: ", describe(*method), " takes no terms of loss"),
                            "remove [[losses]], or choose a method that provides limbeck.terms/1");
  }
  for (const auto& loss : manifest.losses) {
    if (loss.weight == 0) {
      draft.diagnostics.warn(loss.component.at,
                             cat(loss.component.key,
                                 ".weight is 0: the term is computed, with all "
                                 "that it asks of networks, and has no effect"),
                             "remove the term");
    }
  }
}

void warn_callbacks_without_validation(Draft& draft) {
  for (const auto& callback : draft.manifest.callbacks) {
    const Component* component = callback.component.component;
    if (component == nullptr || callback.every_steps == 0) {
      continue;
    }
    const uint64_t events = component->vtable<lb_callback_vtable>().events;
    if ((events & (uint64_t{1} << LB_ON_VALIDATE)) == 0) {
      draft.diagnostics.warn(callback.component.at,
                             cat(callback.component.key, ".every_steps has no effect: ",
                                 describe(*component), " does not validate"));
    }
  }
}

void check_trackers(Draft& draft) {
  std::set<std::string> seen;
  for (const auto& tracker : draft.manifest.trackers) {
    if (!seen.insert(tracker.key).second) {
      draft.diagnostics.error(tracker.at, cat(tracker.key, ": this tracker is listed twice"));
    }
  }
}

// An average that begins after the run is a copy of the weights.
void check_averages(Draft& draft) {
  const int64_t most = draft.manifest.loop.max_train_steps;
  for (const auto& role : draft.manifest.roles) {
    if (most < 1 || !role.ema || role.ema->start_step <= most) {
      continue;
    }
    const auto& values = draft.settled[role.model.key + ".ema"];
    draft.diagnostics.error(
        find_value(values, "start_step")->at,
        cat(role.model.key, ".ema.start_step: expected at most ",
            "training.loop.max_train_steps, which is ", most, ", got ", role.ema->start_step));
  }
}

void warn_validation_after_end(Draft& draft) {
  const int64_t most = draft.manifest.loop.max_train_steps;
  for (const auto& callback : draft.manifest.callbacks) {
    if (most > 0 && callback.every_steps > most) {
      const HostValues host(draft.host[callback.component.key]);
      draft.diagnostics.warn(
          host.position("every_steps"),
          cat(callback.component.key, ".every_steps has no effect: the run ends at step ", most));
    }
  }
}

}  // namespace

void check_rules(Draft& draft) {
  check_optimizers(draft);
  check_losses(draft);
  check_averages(draft);
  warn_callbacks_without_validation(draft);
  warn_validation_after_end(draft);
  check_trackers(draft);
  Shifts(draft).warn_if_different(draft.diagnostics);
}

}  // namespace limbeck
