// SPDX-License-Identifier: Apache-2.0
#include "core/train/run_state.hpp"

#include <map>
#include <set>
#include <utility>

#include <ATen/Parallel.h>

#include "core/base/files.hpp"
#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/folders.hpp"
#include "core/data/record.hpp"
#include "core/manifest/differences.hpp"
#include "core/plugin/host_table.hpp"
#include "core/train/component_state.hpp"
#include "core/train/export.hpp"
#include "core/train/record.hpp"

namespace limbeck {
namespace {

using Document = nlohmann::ordered_json;

// Weights that training changes, by gradients or as an average of others.
bool is_saved(const Role& role) { return role.is_trained() || role.spec().is_shadow; }

bool has_parameters(const Role& role) { return !role.layout().params.empty(); }

// "<kind>.<role>.<part>.<parameter>".
std::string name_of(const std::string& kind, const Role& role, const ParamLayout& param) {
  return cat(kind, role.name(), ".", role.part_name(param.part), ".", param.key);
}

std::string moment_name(const Role& role, const ParamLayout& param, const char* moment) {
  return cat("optimizers.", role.name(), ".state.", role.part_name(param.part), ".", param.key,
             moment);
}

at::Tensor view_in(const at::Tensor& flat, const ParamLayout& param) {
  return flat.narrow(0, param.offset, param.numel).view(param.shape);
}

// Visits every parameter that lies in the trained buffer.
template <class F>
void visit_trained(const Role& role, const F& visitor) {
  for (const auto& param : role.layout().params) {
    if (param.store == Store::kTrained) {
      visitor(param);
    }
  }
}

constexpr const char* kRoles = "roles.";
constexpr const char* kAverages = "ema.";
constexpr const char* kExpAvg = ".exp_avg";
constexpr const char* kExpAvgSq = ".exp_avg_sq";

// ---- saving

void save_role(SnapshotWriter& writer, Role& role) {
  const auto master = host_copy(role.master());
  visit_trained(role, [&](const ParamLayout& param) {
    writer.tensor(name_of(kRoles, role, param), view_in(master, param));
  });
  for (size_t i = 0; i < role.buffers().size(); ++i) {
    if (role.buffers()[i].defined()) {
      writer.tensor(name_of(kRoles, role, role.layout().params[i]), host_copy(role.buffers()[i]));
    }
  }
  if (role.has_average()) {
    const auto average = host_copy(role.average());
    visit_trained(role, [&](const ParamLayout& param) {
      writer.tensor(name_of(kAverages, role, param), view_in(average, param));
    });
  }
}

void save_optimizer(SnapshotWriter& writer, RoleOptimizer& optimizer, bool has_moments) {
  const Role& role = optimizer.role();
  if (has_moments) {
    const auto exp_avg = host_copy(optimizer.exp_avg());
    const auto exp_avg_sq = host_copy(optimizer.exp_avg_sq());
    visit_trained(role, [&](const ParamLayout& param) {
      writer.tensor(moment_name(role, param, kExpAvg), view_in(exp_avg, param));
      writer.tensor(moment_name(role, param, kExpAvgSq), view_in(exp_avg_sq, param));
    });
  }
  const auto counts = optimizer.counts();
  const std::string prefix = cat("optimizers.", role.name(), ".");
  writer.value(prefix + "updates", {counts.updates});
  for (size_t part = 0; part < counts.parts.size(); ++part) {
    writer.value(cat(prefix, "parts.", role.part_name(part), ".updates"), {counts.parts[part]});
  }
  if (role.has_average()) {
    writer.value(cat(kAverages, role.name(), ".updates"), {counts.averaged_updates});
  }
}

// The adapter_config.json of each part that has its own, or one for all.
Document adapters_json(const Role& role) {
  auto list = Document::array();
  for (const auto& adapter : role.spec().adapters) {
    list.push_back(Document::parse(adapter.config.to_json(role.spec().init_from.string())));
  }
  return list;
}

Document role_json(const Role& role) {
  const auto& spec = role.spec();
  auto parts = Document::object();
  for (size_t part = 0; part < role.layout().parts.size(); ++part) {
    auto config = export_config(role);
    const auto class_name = config["_class_name"];
    config.erase("_class_name");
    parts[role.part_name(part)] = {{"class", class_name}, {"config", std::move(config)}};
  }
  return {{"type", spec.model.component->name()},
          {"plugin", spec.model.component->library->plugin->id},
          {"init_from", spec.init_from.string()},
          {"trained", role.is_trained()},
          {"average_of", spec.is_shadow ? Document(spec.shadow_of) : Document()},
          {"averaged", role.has_average()},
          {"parameters", role.layout().parameter_count()},
          {"frozen_xxh3", digest_text(role.frozen_hash())},
          {"adapters", adapters_json(role)},
          {"parts", std::move(parts)}};
}

Document facts_json(const Run& run, Document plugins, const std::vector<Stateful>& components) {
  auto roles = Document::object();
  for (const auto& role : run.roles) {
    if (has_parameters(*role)) {
      roles[role->name()] = role_json(*role);
    }
  }
  auto stateful = Document::object();
  for (const auto& component : components) {
    stateful[component.place] = {{"type", component.component->name()},
                                 {"plugin", component.component->library->plugin->id},
                                 {"state_version", component.component->table->state_version},
                                 {"has_state", static_cast<bool>(component.save)}};
  }
  return {{"limbeck", version()},
          {"abi", cat(LB_ABI_MAJOR, ".", LB_ABI_MINOR)},
          {"libtorch", host_torch_tag()},
          {"seed", run.manifest.run.seed},
          {"threads", at::get_num_threads()},
          {"world",
           {{"replicate", run.mesh.replicate},
            {"shard", run.mesh.shard},
            {"sequence", run.mesh.sequence}}},
          {"plugins", std::move(plugins)},
          {"roles", std::move(roles)},
          {"components", std::move(stateful)}};
}

// ---- loading

[[noreturn]] void refuse(const std::string& what, const std::string& hint) {
  throw Error(Fault::kData, what, hint);
}

// False: the checkpoint does not have the role.
bool load_role(SnapshotReader& reader, Role& role) {
  if (role.spec().is_shadow && reader.names(cat(kRoles, role.name(), ".")).empty()) {
    log::warn("resume",
              cat("the checkpoint has no role '", role.name(),
                  "': its average begins anew with the weights of '", role.spec().shadow_of, "'"));
    return false;
  }
  visit_trained(role, [&](const ParamLayout& param) {
    reader.want(name_of(kRoles, role, param), view_in(role.master(), param));
  });
  for (size_t i = 0; i < role.buffers().size(); ++i) {
    if (role.buffers()[i].defined()) {
      reader.want(name_of(kRoles, role, role.layout().params[i]), role.buffers()[i]);
    }
  }
  return true;
}

// Whether the average was in the checkpoint.
bool load_average(SnapshotReader& reader, Role& role) {
  const std::string prefix = cat(kAverages, role.name(), ".");
  const bool is_there = !reader.names(prefix).empty();
  if (!role.has_average()) {
    if (is_there) {
      log::warn("resume", cat("role '", role.name(),
                              "' has no moving average in this manifest: the one of the checkpoint "
                              "is left aside"));
      reader.leave(prefix);
    }
    return false;
  }
  if (!is_there) {
    log::warn("resume", cat("the checkpoint has no moving average of role '", role.name(),
                            "': it begins anew with the weights of the checkpoint"));
    return false;
  }
  visit_trained(role, [&](const ParamLayout& param) {
    reader.want(name_of(kAverages, role, param), view_in(role.average(), param));
  });
  return true;
}

void load_optimizer(SnapshotReader& reader, RoleOptimizer& optimizer, bool takes_moments) {
  const Role& role = optimizer.role();
  const std::string prefix = cat("optimizers.", role.name(), ".");
  const bool has_average = load_average(reader, optimizer.role());
  const bool has_moments = !reader.names(prefix + "state.").empty();
  RoleOptimizer::Counts counts;
  counts.updates = reader.integer(prefix + "updates");
  counts.averaged_updates =
      has_average ? reader.integer(cat(kAverages, role.name(), ".updates")) : 0;
  for (size_t part = 0; part < role.layout().parts.size(); ++part) {
    const auto saved = reader.integer(cat(prefix, "parts.", role.part_name(part), ".updates"));
    // Fresh moments have seen no update.
    counts.parts.push_back(has_moments && takes_moments ? saved : 0);
  }
  if (has_moments && takes_moments) {
    visit_trained(role, [&](const ParamLayout& param) {
      reader.want(moment_name(role, param, kExpAvg), view_in(optimizer.exp_avg(), param));
      reader.want(moment_name(role, param, kExpAvgSq), view_in(optimizer.exp_avg_sq(), param));
    });
  } else {
    reader.leave(prefix + "state.");
    log::warn("resume", cat("the optimizer of role '", role.name(), "' begins with fresh moments: ",
                            has_moments ? "no_load_optim asks for it"
                                        : "the checkpoint was saved without them (no_save_optim)",
                            "; its learning rate goes on after ", counts.updates, " updates"));
  }
  optimizer.set_counts(counts);
}

// A run goes on with the sources that it began with: other ones would be ignored, or change what
// frozen roles say.
void check_source(const Role& role, const nlohmann::json& saved) {
  const std::filesystem::path before = saved.at("init_from").get<std::string>();
  const auto& now = role.spec().init_from;
  // A folder that is gone was moved or renamed.
  if (role.is_trained() && !now.empty() && now != before && std::filesystem::exists(before)) {
    refuse(cat("models.", role.name(), ".init_from is ", now.string(),
               ", but the run that is resumed began with ", before.string()),
           "weights to start from and a checkpoint to go on from do not go together: set init_from "
           "back, or start a new run without --resume-from-checkpoint");
  }
  const auto hash = digest_text(role.frozen_hash());
  if (hash != saved.at("frozen_xxh3").get<std::string>()) {
    refuse(cat("the frozen weights of role '", role.name(),
               "' are not those that the run was saved with"),
           cat("bring back what ", before.empty() ? "run.seed" : before.string(),
               " gave, in the same dtype, or start a new run"));
  }
}

void check_role(const Role& role, const nlohmann::json& roles) {
  const auto found = roles.find(role.name());
  if (found == roles.end()) {
    if (role.is_trained()) {
      refuse(cat("the checkpoint has no role '", role.name(), "', which this manifest trains"),
             "start a new run, with init_from for the weights that are there");
    }
    return;
  }
  const auto type = found->at("type").get<std::string>();
  if (type != role.spec().model.component->name()) {
    refuse(cat("role '", role.name(), "' is a network '", role.spec().model.component->name(),
               "', in the checkpoint it is a '", type, "'"),
           "resume with the network that the run was made with");
  }
  if (found->at("trained").get<bool>() != role.is_trained()) {
    refuse(cat("role '", role.name(), "' is ", role.is_trained() ? "trained" : "not trained",
               " in this manifest, and was ", role.is_trained() ? "not" : "", " in the checkpoint"),
           "start a new run, with init_from for the weights that are there");
  }
  check_source(role, *found);
}

void load_component(SnapshotReader& reader, const Stateful& component, uint32_t state_version) {
  if (state_version > component.component->table->state_version) {
    refuse(cat("the state of ", component.place, " has version ", state_version,
               "; the plugin reads versions up to ", component.component->table->state_version),
           "use the version of the plugin that wrote it, or a newer one");
  }
  MemoryState state;
  get_state(reader, cat("components.", component.place, "/"), state);
  call_plugin([&] { return component.load(state.reader(state_version)); },
              [&] { return component.title; });
  if (const auto unread = state.unread(); !unread.empty()) {
    log::warn("resume", cat(component.place, " left aside what it had saved: ", join(unread)));
  }
}

// Changes that a person may want to know of; those that cannot be are errors elsewhere.
void log_changes(const std::filesystem::path& checkpoint, const std::string& resolved) {
  const auto changes = manifest_differences(read_file(checkpoint / kCheckpointConfig), resolved);
  for (const auto& change : changes) {
    log::info("resume", "changed since the checkpoint: " + change);
  }
}

}  // namespace

std::vector<Stateful> stateful_components(const Run& run) {
  std::vector<Stateful> all = {stateful("method", run.method)};
  std::map<std::string, int> counts;
  const auto place = [&](const std::string& list, const ComponentSpec& spec) {
    const std::string name = cat(list, ".", spec.component->name());
    const int count = ++counts[name];
    return count == 1 ? name : cat(name, "-", count);
  };
  for (const auto& hook : run.hooks.prepare) {
    all.push_back(stateful(place("prepare", hook->instance.spec()), hook->instance));
  }
  for (const auto& hook : run.hooks.losses) {
    all.push_back(stateful(place("losses", hook->instance.spec()), hook->instance));
  }
  for (auto& callback : run.callbacks.stateful()) {
    all.push_back(std::move(callback));
  }
  if (run.loader != nullptr) {
    all.push_back(run.loader->stateful());
  }
  return all;
}

std::optional<std::filesystem::path> checkpoint_to_resume(const Manifest& manifest) {
  const auto& argument = manifest.checkpoint.resume_from;
  if (argument.empty()) {
    return std::nullopt;
  }
  auto folder = resolve_checkpoint(argument, manifest.run.output_dir);
  if (!folder.has_value()) {
    log::info("resume", cat("nothing was saved in ", manifest.run.output_dir.string(),
                            " yet: the run starts from the beginning"));
  }
  return folder;
}

RunState::RunState(Run& run, nlohmann::ordered_json plugins)
    : run_(run), components_(stateful_components(run)), plugins_(std::move(plugins)) {
  // Hashing weights takes time, which the first save should not.
  if (run.manifest.checkpoint.every_steps > 0) {
    facts_ = facts_json(run_, plugins_, components_);
  }
}

std::optional<RunSnapshot> RunState::save(const RunPosition& position) {
  SnapshotWriter writer;
  if (!save_components(writer)) {
    return std::nullopt;
  }
  for (auto& role : run_.roles) {
    if (is_saved(*role)) {
      save_role(writer, *role);
    }
  }
  for (auto& optimizer : run_.optimizers) {
    if (optimizer != nullptr) {
      save_optimizer(writer, *optimizer, run_.manifest.checkpoint.saves_optimizer);
    }
  }
  if (facts_.is_null()) {
    facts_ = facts_json(run_, plugins_, components_);
  }
  RunSnapshot saved{writer.take(), {run_.manifest.explained, {}}};
  auto& record = saved.text.record;
  record.step = position.step;
  record.saved = now_text();
  record.facts = {{"run_id", position.id}, {"samples", position.samples}};
  record.facts.update(facts_);
  record.facts["data"] =
      run_.loader == nullptr ? Document() : Document::parse(run_.loader->record().to_json());
  return saved;
}

// False: one of them cannot now.
bool RunState::save_components(SnapshotWriter& writer) const {
  const at::NoGradGuard no_grad;
  for (const auto& component : components_) {
    if (!component.save) {
      continue;
    }
    MemoryState state;
    bool can_save = true;
    call_plugin(
        [&] {
          lb_status* status = component.save(state.writer());
          if (status != nullptr && status->code == LB_UNAVAILABLE) {
            drop_status(status);
            status = nullptr;
            can_save = false;
          }
          return status;
        },
        [&] { return component.title; });
    if (!can_save) {
      return false;
    }
    if (!state.bad_names().empty()) {
      throw Error(Fault::kPlugin, cat("save() gives the names ", join(state.bad_names()),
                                      ", which are not [a-z0-9_.]+ or were given before"))
          .with(component.title);
    }
    put_state(writer, cat("components.", component.place, "/"), state);
  }
  return true;
}

void RunState::load_components(SnapshotReader& reader, const nlohmann::json& saved) const {
  std::set<std::string> present;
  for (const auto& component : components_) {
    present.insert(component.place);
    const auto found = saved.find(component.place);
    const std::string type = component.component->name();
    if (found == saved.end() || found->at("type").get<std::string>() != type) {
      if (component.place == "method") {
        refuse(cat("the run that is resumed has the method '", found->at("type").get<std::string>(),
                   "', this manifest '", type, "'"),
               "start a new run, with init_from for the weights that are there");
      }
      if (component.load) {
        log::warn("resume",
                  cat("the checkpoint has no state of ", component.place, ": it begins anew"));
      }
      continue;
    }
    if (component.load && found->at("has_state").get<bool>()) {
      load_component(reader, component, found->at("state_version").get<uint32_t>());
    }
  }
  for (const auto& [place, component] : saved.items()) {
    const std::string prefix = cat("components.", place, "/");
    if (present.count(place) == 0 && !reader.names(prefix).empty()) {
      log::warn("resume", cat("this manifest has no ", place, ": its state is left aside"));
      reader.leave(prefix);
    }
  }
}

RunPosition RunState::load(const std::filesystem::path& checkpoint) {
  const at::NoGradGuard no_grad;
  const auto record = open_checkpoint(checkpoint);
  const nlohmann::json facts = record.facts;
  RunPosition position;
  try {
    position = {facts.at("run_id").get<std::string>(), record.step,
                facts.at("samples").get<int64_t>()};
    log_changes(checkpoint, run_.manifest.resolved);
    if (const auto threads = facts.at("threads").get<int>(); threads != at::get_num_threads()) {
      log::info("resume", cat("the checkpoint was made with ", threads, " threads, this run has ",
                              at::get_num_threads(), ": sums may differ in their last bits"));
    }
    for (const auto& role : run_.roles) {
      if (has_parameters(*role)) {
        check_role(*role, facts.at("roles"));
      }
    }
    if (run_.loader != nullptr && !facts.at("data").is_null()) {
      run_.loader->restore(DataRecord::from_json(facts.at("data").dump()),
                           run_.manifest.checkpoint.allows_data_change);
    }
    SnapshotReader reader(checkpoint);
    load_components(reader, facts.at("components"));
    std::vector<Role*> begun_anew;
    for (auto& role : run_.roles) {
      if (is_saved(*role) && !load_role(reader, *role)) {
        begun_anew.push_back(role.get());
      }
    }
    for (auto& optimizer : run_.optimizers) {
      if (optimizer != nullptr) {
        load_optimizer(reader, *optimizer, run_.manifest.checkpoint.loads_optimizer);
      }
    }
    for (const auto& [name, role] : facts.at("roles").items()) {
      const bool is_gone = find_role(run_.roles, name) == nullptr;
      if (is_gone && role.at("trained").get<bool>()) {
        refuse(cat("the checkpoint trains a role '", name, "', which this manifest does not have"),
               "start a new run, with init_from for the weights that are there");
      }
      if (is_gone && !role.at("average_of").is_null()) {
        log::warn("resume", cat("this manifest has no role '", name, "', an average of '",
                                role.at("average_of").get<std::string>(), "': it is left aside"));
        reader.leave(cat(kRoles, name, "."));
      }
    }
    reader.finish();
    for (auto& optimizer : run_.optimizers) {
      if (optimizer != nullptr && optimizer->counts().averaged_updates == 0) {
        optimizer->role().reset_average();
      }
    }
    for (auto* shadow : begun_anew) {
      shadow->copy_weights(*find_role(run_.roles, shadow->spec().shadow_of));
    }
  } catch (const nlohmann::json::exception& error) {
    refuse(cat((checkpoint / kRecordFile).string(),
               " is not what this limbeck writes: ", error.what()),
           "was it edited?");
  }
  return position;
}

}  // namespace limbeck
