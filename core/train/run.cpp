// SPDX-License-Identifier: Apache-2.0
#include "core/train/run.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include <ATen/Parallel.h>

#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/manifest/strided.hpp"
#include "core/plugin/host_table.hpp"
#include "core/tensor/random.hpp"
#include "core/tensor/tensor_api.hpp"

namespace limbeck {
namespace {

void set_draws(const Manifest& manifest, const Mesh& mesh) {
  set_random_context({manifest.run.seed, mesh.data_size(), mesh.data_rank()});
  if (manifest.run.replay.empty()) {
    return;
  }
  log::warn("run", cat("random draws come from ", manifest.run.replay.string(),
                       ": this run is a comparison, not a training"));
  const SafetensorsFile file(manifest.run.replay);
  std::map<std::string, at::Tensor> draws;
  for (const auto& [name, info] : file.tensors()) {
    draws.emplace(name, file.tensor(name));
  }
  set_recorded_draws(std::move(draws));
}

Mesh make_mesh(const Manifest& manifest) {
  return {manifest.distributed.replicate, manifest.distributed.shard, manifest.distributed.sequence,
          0};
}

RoleSet make_roles(const Manifest& manifest, const Mesh& mesh) {
  RoleSet roles;
  for (const auto& spec : manifest.roles) {
    roles.push_back(std::make_unique<Role>(spec, mesh));
  }
  return roles;
}

Hooks make_hooks(const Manifest& manifest, const RoleSet& roles) {
  Hooks hooks;
  for (const auto& spec : manifest.prepare) {
    hooks.prepare.push_back(std::make_unique<PrepareHook>(spec, roles));
  }
  for (const auto& spec : manifest.losses) {
    hooks.losses.push_back(std::make_unique<LossHook>(spec, roles));
  }
  return hooks;
}

lb_batch make_facts(const Manifest& manifest) {
  lb_batch facts;
  for (const auto& [name, value] : manifest.facts) {
    facts.put(name, value);
  }
  facts.put("run.seed", static_cast<double>(manifest.run.seed));
  facts.put("run.name", TextRows{manifest.run.name});
  facts.put("run.output_dir", TextRows{manifest.run.output_dir.string()});
  return facts;
}

const char* const* reads_of(const CallbackSpec& callback) {
  return callback.component.component->vtable<lb_callback_vtable>().reads;
}

// The entries that somebody reads; empty when a component does not say.
std::vector<std::string> wanted_entries(const Manifest& manifest,
                                        const Method& method,
                                        const Hooks& hooks) {
  std::set<std::string> wanted;
  bool is_known = true;
  const auto add = [&](const char* const* reads) {
    is_known = is_known && reads != nullptr;
    for (; reads != nullptr && *reads != nullptr; ++reads) {
      std::string name = *reads;
      if (name.ends_with('?')) {
        name.pop_back();
      }
      wanted.insert(std::move(name));
    }
  };
  add(method.vtable().reads);
  for (const auto& hook : hooks.prepare) {
    add(hook->instance.vtable().reads);
  }
  for (const auto& hook : hooks.losses) {
    add(hook->instance.vtable().reads);
  }
  for (const auto& callback : manifest.callbacks) {
    if (const auto* reads = reads_of(callback); reads != nullptr) {
      add(reads);
    }
  }
  return is_known ? std::vector<std::string>(wanted.begin(), wanted.end())
                  : std::vector<std::string>();
}

TokenCounts token_counts(const RoleSet& roles) {
  constexpr std::string_view kSuffix = ".tokens";
  TokenCounts tokens;
  for (const auto& role : roles) {
    for (const auto& [name, entry] : role->facts().entries) {
      const auto* value = std::get_if<double>(&entry);
      if (value != nullptr && name.ends_with(kSuffix) && *value > 0) {
        tokens.emplace(name, static_cast<int64_t>(*value));
      }
    }
  }
  return tokens;
}

std::unique_ptr<Loader> make_loader(const Manifest& manifest,
                                    const Mesh& mesh,
                                    std::vector<std::string> wanted,
                                    const RoleSet& roles) {
  if (!manifest.data.has_value()) {
    return nullptr;
  }
  return std::make_unique<Loader>(*manifest.data, std::move(wanted), mesh, manifest.run.seed,
                                  manifest.data->batch_size, token_counts(roles));
}

// Callbacks see rows as the data set gives them.
void check_callback_entries(const Manifest& manifest, const Loader* loader) {
  std::set<std::string> present;
  if (loader != nullptr) {
    for (const auto& field : loader->fields()) {
      present.insert(field.name);
    }
  }
  for (const auto& callback : manifest.callbacks) {
    const char* const* reads = reads_of(callback);
    for (; reads != nullptr && *reads != nullptr; ++reads) {
      const std::string name = *reads;
      if (!name.ends_with('?') && present.count(name) == 0) {
        throw Error(Fault::kManifest,
                    cat("callbacks.", callback.name, " reads '", name, "' of the training data, ",
                        loader == nullptr ? "which this run does not have"
                                          : cat("and ", loader->title(), " has only: ",
                                                join({present.begin(), present.end()}))),
                    "choose another [training.data], or remove the callback");
      }
    }
  }
}

// Every entry that the method cannot do without comes from the data set or a prepare hook.
void check_entries(const Method& method, const Hooks& hooks, const Loader* loader) {
  if (loader == nullptr || method.vtable().reads == nullptr) {
    return;
  }
  std::set<std::string> present;
  for (const auto& field : loader->fields()) {
    present.insert(field.name);
  }
  bool is_known = true;
  std::vector<std::string> missing;
  const auto need = [&](const char* const* reads, const std::string& who) {
    for (; reads != nullptr && *reads != nullptr; ++reads) {
      const std::string name = *reads;
      if (!name.ends_with('?') && present.count(name) == 0) {
        missing.push_back(cat("'", name, "' (", who, ")"));
      }
    }
  };
  for (const auto& hook : hooks.prepare) {
    const auto& vtable = hook->instance.vtable();
    need(vtable.reads, hook->instance.spec().key + " " + hook->instance.spec().component->name());
    is_known = is_known && vtable.writes != nullptr;
    for (const auto* const* name = vtable.writes; name != nullptr && *name != nullptr; ++name) {
      present.insert(*name);
    }
  }
  if (is_known) {
    need(method.vtable().reads, "method " + method.spec().component->name());
  }
  if (!missing.empty()) {
    throw Error(Fault::kManifest,
                cat("nobody provides ", join(missing), "; ", loader->title(),
                    " and the prepare "
                    "hooks provide: ",
                    join(std::vector<std::string>(present.begin(), present.end()))),
                "add the [[prepare]] hook that writes it, before the one that reads it");
  }
}

// An average that is too slow for its run looks as if it were broken.
void warn_of_slow_average(const Role& role, int64_t updates) {
  const auto& ema = role.spec().ema;
  if (!role.is_trained() || !ema.has_value() || updates == 0) {
    return;
  }
  double left = 1;
  for (int64_t n = 1; n <= updates && left > 1e-3; ++n) {
    left *= ema_decay(*ema, n);
  }
  constexpr double kMuch = 0.2;
  if (left > kMuch) {
    log::warn("run", cat("the moving average of role '", role.name(), "' still holds ",
                         std::lround(100 * left), " % of its first value after all ", updates,
                         " updates: lower models.", role.name(), ".ema.decay, or set its warmup"));
  }
}

}  // namespace

void provide_services() {
  set_run_device(at::kCPU);
  provide("limbeck.tensor/1", &tensor_api());
  provide("limbeck.dispatch/1", &dispatch_api());
  provide("limbeck.batch/1", &batch_api());
  provide("limbeck.random/1", &random_api());
}

void start_process(const Manifest& manifest, Registry& registry) {
  if (manifest.run.threads > 0) {
    at::set_num_threads(static_cast<int>(manifest.run.threads));
  }
  log::info("run", cat("seed ", manifest.run.seed, ", ", at::get_num_threads(), " threads"));
  provide_services();
  set_draws(manifest, make_mesh(manifest));
  registry.start(host_table());
}

Run::Run(const Manifest& of)
    : manifest(of),
      mesh(make_mesh(of)),
      roles(make_roles(of, mesh)),
      method(of.method),
      models(resolve_roles(method.vtable().roles, of.method, roles)),
      hooks(make_hooks(of, roles)),
      facts(make_facts(of)),
      loader(make_loader(of, mesh, wanted_entries(of, method, hooks), roles)),
      callbacks(of, roles, loader.get(), facts, metrics) {
  check_entries(method, hooks, loader.get());
  check_callback_entries(of, loader.get());
  // The first plan is made now, so that a method that cannot plan is found before weights are read.
  plan_step(method, models.roles(), of.loop.gradient_accumulation_steps, 1);
}

void Run::load(bool resumes) {
  for (auto& role : roles) {
    role->allocate();
    const auto& layout = role->layout();
    const bool is_restored = resumes && (role->is_trained() || role->spec().is_shadow) &&
                             layout.frozen_size == 0 && layout.frozen_wide_size == 0;
    if (is_restored) {
      continue;
    }
    if (!role->spec().init_from.empty()) {
      role->load(role->spec().init_from);
    } else if ((!role->is_trained() || role->has_adapters()) && !role->spec().is_shadow &&
               role->layout().parameter_count() > 0) {
      log::warn("run", cat("role '", role->name(), "' is frozen and has no init_from: its ",
                           role->layout().parameter_count(), " parameters are random"));
    }
    role->load_adapters();
  }
  for (auto& role : roles) {
    if (role->spec().is_shadow && role->spec().init_from.empty()) {
      role->copy_weights(*find_role(roles, role->spec().shadow_of));
    }
  }
  make_runner();
}

void Run::load_shapes() {
  for (auto& role : roles) {
    role->allocate();
  }
  make_runner();
}

void Run::make_runner() {
  const auto accumulation = manifest.loop.gradient_accumulation_steps;
  const auto horizons =
      count_updates(method, models.roles(), accumulation, manifest.loop.max_train_steps);
  std::vector<RoleOptimizer*> by_role;
  for (size_t i = 0; i < models.roles().size(); ++i) {
    auto* role = models.roles()[i];
    const bool is_trained = role != nullptr && role->is_trained();
    if (is_trained) {
      warn_of_slow_average(*role, horizons[i]);
    }
    optimizers.push_back(is_trained ? std::make_unique<RoleOptimizer>(*role, horizons[i])
                                    : nullptr);
    by_role.push_back(optimizers.back().get());
  }
  runner = std::make_unique<StepRunner>(StepParts{method, models, hooks, loader.get(), by_role,
                                                  facts, metrics, accumulation, manifest.clip});
}

}  // namespace limbeck
