// SPDX-License-Identifier: Apache-2.0
// The stage that reads the tables which are the host's alone.
#include <system_error>
#include <utility>

#include "core/base/text.hpp"
#include "core/manifest/component_table.hpp"
#include "core/manifest/draft.hpp"
#include "core/manifest/host_values.hpp"
#include "core/manifest/option_table.hpp"
#include "core/manifest/tables.hpp"

namespace limbeck {
namespace {

namespace fs = std::filesystem;

// Checks the table at `key` and keeps its values.
HostValues read_table(Draft& draft, const std::string& key, const std::vector<lb_option>& options) {
  Node* table = find_path(draft.root, key);
  const Node empty{Node::Table{}, draft.file_position()};
  draft.host[key] = check_table(table == nullptr ? empty : *table, options, key, draft.scope());
  return HostValues(draft.host[key]);
}

fs::path absolute(const fs::path& path) {
  std::error_code failed;
  const fs::path found = fs::absolute(path, failed);
  return (failed ? path : found).lexically_normal();
}

// What cannot be written to, or read from, is known before anything is trained.
void check_places(Draft& draft, const HostValues& run) {
  const RunSpec& spec = draft.manifest.run;
  std::error_code ignored;
  if (fs::exists(spec.output_dir, ignored) && !fs::is_directory(spec.output_dir, ignored)) {
    const bool is_given = !draft.has_output_override && run.is_given("output_dir");
    draft.diagnostics.error(
        draft.has_output_override ? Position{"--override-output-dir", 0, 0}
        : is_given                ? run.position("output_dir")
                                  : draft.file_position(),
        cat("run.output_dir: ", spec.output_dir.string(), " is there and is no folder"));
  }
  if (draft.needs_files && !spec.replay.empty() && !fs::is_regular_file(spec.replay, ignored)) {
    draft.diagnostics.error(run.position("replay"),
                            cat("run.replay: no such file: ", spec.replay.string()),
                            "paths are relative to the manifest's folder");
  }
}

void read_run(Draft& draft, const fs::path& output_dir) {
  const HostValues run = read_table(draft, "run", run_options());
  RunSpec& spec = draft.manifest.run;
  spec.name = run.text_or("name", fs::path(draft.file).stem().string());
  draft.has_output_override = !output_dir.empty();
  spec.output_dir = absolute(!output_dir.empty() ? output_dir.string()
                                                 : run.text_or("output_dir", "runs/" + spec.name));
  spec.seed = static_cast<uint64_t>(run.integer("seed"));
  spec.device = run.text("device");
  spec.threads = run.integer("threads");
  spec.log_every_steps = run.integer("log_every_steps");
  spec.replay = run.text_or("replay", "");
  const auto limit = run.text("max_wall_time");
  if (const auto seconds = seconds_of(limit); seconds.has_value()) {
    spec.max_wall_seconds = *seconds;
  } else {
    draft.diagnostics.error(run.position("max_wall_time"),
                            cat("run.max_wall_time: \"", limit, "\" is no time"),
                            "write hours, minutes and seconds: \"4h30m\", \"90s\"");
  }
  check_places(draft, run);
  if (spec.device == "cuda") {
    draft.diagnostics.error(run.position("device"),
                            "run.device: \"cuda\" is not available in this version",
                            "use \"cpu\", or \"auto\" to take what there is");
  }
}

void read_loop(Draft& draft) {
  const HostValues loop = read_table(draft, "training.loop", loop_options());
  draft.manifest.loop = {loop.integer("max_train_steps"),
                         loop.integer("gradient_accumulation_steps")};
}

void read_checkpoint(Draft& draft) {
  const HostValues values = read_table(draft, "training.checkpoint", checkpoint_options());
  auto& checkpoint = draft.manifest.checkpoint;
  checkpoint.resume_from = values.text("resume_from_checkpoint");
  if (!checkpoint.resume_from.empty() && checkpoint.resume_from != "latest") {
    checkpoint.resume_from = absolute(checkpoint.resume_from).string();
  }
  checkpoint.every_steps = values.integer("training_state_checkpointing_steps");
  checkpoint.total_limit = values.integer("checkpoints_total_limit");
  checkpoint.saves_optimizer = !values.boolean("no_save_optim");
  checkpoint.loads_optimizer = !values.boolean("no_load_optim");
  checkpoint.allows_data_change = values.boolean("allow_dataset_change");
}

void read_performance(Draft& draft) {
  const HostValues values = read_table(draft, "training.performance", performance_options());
  auto& performance = draft.manifest.performance;
  performance.is_enabled = values.boolean("enabled");
  if (values.find("peak_tflops_per_gpu") != nullptr) {
    performance.peak_tflops_per_gpu = values.number("peak_tflops_per_gpu");
  }
}

void read_distributed(Draft& draft) {
  const HostValues values = read_table(draft, "training.distributed", distributed_options());
  // -1 means "all ranks", of which there is one.
  const int64_t shards = values.integer("hsdp_shard_dim");
  if (shards != 1 && shards != -1) {
    draft.diagnostics.error(values.position("hsdp_shard_dim"),
                            cat("training.distributed.hsdp_shard_dim: ", shards,
                                " is not available in this version; expected 1"));
  }
}

void read_clip(Draft& draft) {
  const HostValues values = read_table(draft, "callbacks.grad_clip", grad_clip_options());
  const double norm = values.number("max_grad_norm");
  draft.manifest.clip.max_grad_norm = norm > 0 ? std::optional<double>(norm) : std::nullopt;
}

// Without the tables of the trackers in use, which read_components() checks.
void read_trackers(Draft& draft) {
  const std::string key = "training.tracker";
  Node own = *find_path(draft.root, key);
  if (const Node* names = own.find("trackers"); names != nullptr && names->list() != nullptr) {
    for (const auto& item : *names->list()) {
      if (item.text() != nullptr) {
        remove_member(own, *item.text());
      }
    }
  }
  auto options = tracker_options();
  for (const auto& member : *own.table()) {
    const bool is_unused =
        member.node.table() != nullptr && find_option(options, member.key) == nullptr;
    if (is_unused) {
      draft.diagnostics.error(member.key_at,
                              cat(key, ".", member.key, ": this tracker is not in use"),
                              cat("add \"", member.key, "\" to training.tracker.trackers"));
    }
  }
  std::erase_if(std::get<Node::Table>(own.value), [&options](const Member& member) {
    return member.node.table() != nullptr && find_option(options, member.key) == nullptr;
  });
  draft.host[key] = check_table(own, options, key, draft.scope());
}

}  // namespace

void read_host_tables(Draft& draft, const fs::path& output_dir) {
  read_run(draft, output_dir);
  read_table(draft, "pipeline", pipeline_options());
  // The tables inside it are read one by one; this is for the keys beside them.
  check_values(*find_path(draft.root, "training"), training_options(), "training", draft.scope());
  read_table(draft, "training.optimizer", optimizer_options());
  read_loop(draft);
  read_performance(draft);
  read_distributed(draft);
  read_table(draft, "training.model", training_model_options());
  read_checkpoint(draft);
  read_trackers(draft);
  read_clip(draft);
  if (inner_table(draft.root, "callbacks").find("ema") != nullptr) {
    read_table(draft, "callbacks.ema", ema_callback_options());
  }
}

}  // namespace limbeck
