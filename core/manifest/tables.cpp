// SPDX-License-Identifier: Apache-2.0
#include "core/manifest/tables.hpp"

#include <iterator>
#include <utility>

#include "core/manifest/option_table.hpp"

namespace limbeck {
namespace {

// ---- one line per key ----

constexpr lb_option key(const char* name, lb_type type, const char* fallback, const char* doc) {
  return {name, type,   fallback == nullptr ? kOptional : 0U, doc, fallback, nullptr, nullptr,
          {},   nullptr};
}
constexpr lb_option ranged(lb_option option, const char* range) {
  option.range = range;
  return option;
}
constexpr lb_option list_of(lb_option option) {
  option.flags |= uint32_t{LB_OPT_LIST};
  return option;
}
constexpr lb_option required(lb_option option) {
  option.flags &= ~kOptional;
  return option;
}
// `fallback` is TOML text; NULL: the key may be absent and then has no value.
constexpr lb_option boolean(const char* name, const char* fallback, const char* doc) {
  return key(name, LB_BOOL, fallback, doc);
}
constexpr lb_option integer(const char* name,
                            const char* fallback,
                            const char* range,
                            const char* doc) {
  return ranged(key(name, LB_INT, fallback, doc), range);
}
constexpr lb_option number(const char* name,
                           const char* fallback,
                           const char* range,
                           const char* doc) {
  return ranged(key(name, LB_FLOAT, fallback, doc), range);
}
constexpr lb_option text(const char* name, const char* fallback, const char* doc) {
  return key(name, LB_STRING, fallback, doc);
}
constexpr lb_option path(const char* name, const char* doc) {
  return key(name, LB_PATH, nullptr, doc);
}
constexpr lb_option choice(const char* name,
                           const char* fallback,
                           const char* const* choices,
                           const char* doc) {
  lb_option option = key(name, LB_ENUM, fallback, doc);
  option.choices = choices;
  return option;
}
constexpr lb_option table(const char* name, const char* doc) {
  lb_option option = key(name, LB_TABLE, nullptr, doc);
  option.flags |= kElsewhere;
  return option;
}
constexpr lb_option tables(const char* name, const char* doc) { return list_of(table(name, doc)); }
constexpr lb_option unavailable(const char* name, const char* doc = "") {
  lb_option option = key(name, LB_STRING, nullptr, doc);
  option.flags |= kUnavailable;
  return option;
}
// Its default is the only value that this version has.
constexpr lb_option fixed(lb_option option) {
  option.flags |= kFixed;
  return option;
}
// Data sets may declare it themselves.
constexpr lb_option yielding(lb_option option) {
  option.flags |= kYields;
  return option;
}
// Taken by the components that name it as an alias; `where` says which those are.
constexpr lb_option forwarded(const char* name, const char* where) {
  lb_option option = key(name, LB_STRING, nullptr, where);
  option.flags |= kForwarded | kYields;
  return option;
}
constexpr lb_option moved(const char* name, const char* to) {
  lb_option option = key(name, LB_STRING, nullptr, "");
  option.alias = to;
  return option;
}

template <size_t N>
std::vector<lb_option> list(const lb_option (&options)[N]) {
  return {std::begin(options), std::end(options)};
}

// ---- choices ----

constexpr const char* kDevices[] = {"auto", "cpu", "cuda", nullptr};
constexpr const char* kDtypes[] = {"fp32", "bf16", "fp64", nullptr};
constexpr const char* kRecompute[] = {"none", "full", "ops", "block_skip", nullptr};
constexpr const char* kEmaUpdates[] = {"on_role_step", "every_step", nullptr};
constexpr const char* kClipScopes[] = {"per_role", "global", nullptr};
constexpr const char* kEmaWarmups[] = {"constant", "ratio", "power", "ramp", nullptr};
constexpr const char* kAdapterInits[] = {"kaiming_uniform", "gaussian", nullptr};
constexpr const char* kOrders[] = {"epoch", "reference", nullptr};
constexpr const char* kOnError[] = {"stop", "skip", nullptr};
constexpr const char* kNoDecay[] = {"none", "flagged", nullptr};
constexpr const char* kSchedules[] = {"constant",   "constant_with_warmup", "linear",
                                      "cosine",     "cosine_with_min_lr",   "cosine_with_restarts",
                                      "polynomial", "piecewise_constant",   nullptr};

// ---- keys that several tables have ----

constexpr lb_option kType =
    text("type", nullptr, "The component: what a loaded plugin offers under this name.");
constexpr lb_option kRoleNameField = text("name", nullptr, "A role of the manifest.");

constexpr lb_option roles_table() {
  lb_option option = key("roles", LB_TABLE, "{}", "The component's name of a role = ours.");
  option.flags = LB_OPT_OPEN;
  option.fields = {sizeof(lb_option), 1, &kRoleNameField};
  return option;
}
constexpr lb_option kRoles = roles_table();

constexpr lb_option kEmaDecay =
    number("decay", "0.9999", "[0, 1)", "Share of the average that an update keeps.");
constexpr lb_option kEmaWarmup =
    choice("warmup", "\"constant\"", kEmaWarmups, "How the decay grows to its value.");
constexpr lb_option kEmaUpdate = fixed(choice(
    "update", "\"on_role_step\"", kEmaUpdates, "Averages move after each update of a role."));
constexpr lb_option kEmaDevice = unavailable("device", "averages live where their role does");

constexpr const char* kOfNoiseHook =
    "Taken by a [[prepare]] hook that draws noise levels, as its option of this name.";

// What other trainers call `type` and `plugins`.
constexpr lb_option kTarget =
    unavailable("_target_", "say type = \"...\", the name of a component of a plugin");
constexpr lb_option kPlugin = unavailable("plugin", "list it in \"plugins\"");

}  // namespace

bool is_forwarded(const std::string& path) {
  const std::pair<const char*, std::vector<lb_option>> tables[] = {
      {"training.data", data_options()},
      {"training.model", training_model_options()},
  };
  for (const auto& [table, options] : tables) {
    for (const auto& option : options) {
      if ((option.flags & kForwarded) != 0 && path == std::string(table) + "." + option.name) {
        return true;
      }
    }
  }
  return false;
}

std::string home_of(std::string_view key) {
  const std::pair<const char*, std::vector<lb_option>> tables[] = {
      {"run", run_options()},
      {"pipeline", pipeline_options()},
      {"training.loop", loop_options()},
      {"training.performance", performance_options()},
      {"training.optimizer", optimizer_options()},
      {"training.data", data_options()},
      {"training.distributed", distributed_options()},
      {"training.checkpoint", checkpoint_options()},
      {"training.tracker", tracker_options()},
      {"training.model", training_model_options()},
      {"models.<role>", role_options()},
      {"models.<role>.ema", ema_options()},
      {"models.<role>.lora", lora_options()},
      {"callbacks.grad_clip", grad_clip_options()},
      {"callbacks.<name>", callback_options()},
  };
  if (key == "type" || key == "name" || key == "data") {
    return "";
  }
  for (const auto& [table, options] : tables) {
    const lb_option* option = find_option(options, key);
    if (option != nullptr && (option->flags & kUnavailable) == 0) {
      return table;
    }
  }
  return "";
}

std::vector<lb_option> all_optional(std::vector<lb_option> options) {
  for (auto& option : options) {
    option.flags |= kOptional;
  }
  return options;
}

std::vector<lb_option> top_options() {
  static constexpr lb_option kOptions[] = {
      required(list_of(
          text("plugins", nullptr, "Names of plugins, paths, or { path = ..., sha256 = ... }."))),
      table("run", "Name, place and machine of the run."),
      table("models", "One table per role."),
      table("method", "What is trained and how."),
      tables("prepare", "Hooks that turn a sample into what the method reads, in order."),
      tables("losses", "Terms of the loss, summed."),
      table("training", "Data, optimizer, loop, trackers."),
      table("callbacks", "What else happens while training, in order."),
      table("pipeline", "How samples are drawn."),
  };
  return list(kOptions);
}

std::vector<lb_option> run_options() {
  static constexpr lb_option kOptions[] = {
      text("name", nullptr, "Name of the run; else that of the file."),
      text("output_dir", nullptr, "Where results go, relative to the current folder."),
      integer("seed", "0", "[0, inf)", "Root of all randomness."),
      choice("device", "\"auto\"", kDevices,
             "What computes; cuda is not available in this version."),
      integer("threads", "0", "[0, inf)", "Threads of one process; 0: all processors."),
      integer("log_every_steps", "10", "[1, inf)", "Steps between lines of progress."),
      path("replay", "Recorded random numbers to use instead of new ones."),
      text("max_wall_time", "\"\"",
           "Time after which the run saves and stops, such as \"4h30m\" or \"90s\"; empty: none."),
  };
  return list(kOptions);
}

std::vector<lb_option> pipeline_options() {
  static constexpr lb_option kOptions[] = {
      number("flow_shift", "1.0", "(0, inf)", "Shift of the noise schedule."),
      integer("num_inference_steps", nullptr, "[1, inf)", "Steps of a sampler."),
      number("guidance_scale", nullptr, "[0, inf)", "Weight of classifier-free guidance."),
      unavailable("sampler", "the callback that samples has one of its own"),
      unavailable("dit_config", "options of a network go into [models.<role>.config]"),
      unavailable("embedded_cfg_scale"),
      unavailable("is_causal"),
      unavailable("vae_tiling"),
      unavailable("vae_sp"),
      unavailable("disable_autocast", "set models.<role>.compute_dtype instead"),
  };
  return list(kOptions);
}

std::vector<lb_option> role_options() {
  static constexpr lb_option kOptions[] = {
      kType,
      path("init_from", "Folder with weights and their config.json."),
      table("config", "Options of the network."),
      boolean("trainable", nullptr, "Whether the role is trained; else as the method says."),
      choice("dtype", "\"fp32\"", kDtypes, "Of the weights in memory."),
      choice("compute_dtype", nullptr, kDtypes, "Of the computation; else by device and dtype."),
      choice("enable_gradient_checkpointing_type", nullptr, kRecompute,
             "What is computed again in backward instead of being kept; ops and block_skip are not "
             "available in this version."),
      table("optimizer", "Keys of [training.optimizer] that differ for this role."),
      table("ema", "An average of this role's weights."),
      table("lora", "Adapters that are trained instead of the weights."),
      list_of(path("adapters",
                   "Folders with adapters as PEFT writes them, one for each part of the network.")),
      unavailable("transformer_override_safetensor"),
      unavailable("attention_backend"),
      unavailable("disable_custom_init_weights"),
      unavailable("cpu_offload"),
      unavailable("flow_shift", "all roles share [pipeline] flow_shift"),
      unavailable("transformer_2"),
      kTarget,
      kPlugin,
  };
  return list(kOptions);
}

std::vector<lb_option> lora_options() {
  static constexpr lb_option kOptions[] = {
      boolean("enable", "false", "Trains adapters and leaves the weights as they are."),
      integer("rank", nullptr, "[1, inf)", "Rank of the adapters; of loaded ones their own."),
      number("alpha", nullptr, "(0, inf)", "Adapters count alpha / rank; the rank if not given."),
      list_of(text("target_modules", nullptr,
                   "Linear layers that get one: whole names, or what follows a dot; "
                   "[\"all-linear\"] is all. As the network says if not given.")),
      boolean("use_rslora", "false", "Adapters count alpha / sqrt(rank)."),
      choice("init", "\"kaiming_uniform\"", kAdapterInits, "Of A; B begins with zeros."),
      unavailable("dropout"),
  };
  return list(kOptions);
}

std::vector<lb_option> method_options() {
  static constexpr lb_option kOptions[] = {kType, kRoles, kTarget, kPlugin};
  return list(kOptions);
}

std::vector<lb_option> prepare_options() { return method_options(); }

std::vector<lb_option> loss_options() {
  static constexpr lb_option kOptions[] = {
      kType,   kRoles,  number("weight", "1.0", "(-inf, inf)", "Factor of this term in the sum."),
      kTarget, kPlugin,
  };
  return list(kOptions);
}

std::vector<lb_option> callback_options() {
  static constexpr lb_option kOptions[] = {
      kType,
      kRoles,
      integer("every_steps", "0", "[0, inf)", "Steps between validations; 0: none."),
      unavailable("data", "callbacks see the rows of [training.data]"),
      kTarget,
      kPlugin,
  };
  return list(kOptions);
}

std::vector<lb_option> data_options() {
  static constexpr lb_option kOptions[] = {
      kType,
      integer("train_batch_size", "1", "[1, inf)", "Samples of one micro-batch of one rank."),
      integer("dataloader_num_workers", "0", "[0, inf)", "Reading threads; 0: none of its own."),
      boolean("shuffle", "true", "Whether each epoch has an order of its own."),
      integer("shuffle_window", "64", "[1, inf)", "Runs of samples that are shuffled together."),
      choice("order", "\"epoch\"", kOrders,
             "Of shuffled samples: another one in every epoch, or torch.randperm(seed) in all."),
      choice("on_error", "\"stop\"", kOnError, "What a sample that cannot be read does."),
      integer("max_skipped", "100", "[1, inf)",
              "With on_error = \"skip\": samples that may be unreadable before the run stops."),
      moved("seed", "run.seed"),
      yielding(integer("num_latent_t", "0", "[0, inf)",
                       "Latent frames that are trained on, the first of a sample; 0: all.")),
      yielding(integer("num_frames", "0", "[0, inf)",
                       "Frames of a video, as a check of num_latent_t; 0: not said.")),
      yielding(integer("num_height", "0", "[0, inf)", "Height of sampled videos in pixels.")),
      yielding(integer("num_width", "0", "[0, inf)", "Width of sampled videos in pixels.")),
      forwarded("preprocessed_data_type",
                "Taken by a data set that holds samples of several types."),
      forwarded("training_cfg_rate",
                "Taken by a [[prepare]] hook that drops captions, as its rate."),
      kTarget,
      kPlugin,
  };
  return list(kOptions);
}

std::vector<lb_option> training_options() {
  static constexpr lb_option kVsa[] = {
      unavailable("sparsity"),
      unavailable("decay_rate"),
      unavailable("decay_interval_steps"),
      unavailable("cache_tile_buf"),
  };
  const auto nested = [](const char* name, const lb_option* fields, uint32_t count) {
    lb_option option = key(name, LB_TABLE, nullptr, "");
    option.fields = {sizeof(lb_option), count, fields};
    return option;
  };
  static const lb_option kOptions[] = {
      table("data", "The training data."),
      table("optimizer", "AdamW and its learning rate."),
      table("loop", "How long to train."),
      table("distributed", "How ranks share the work."),
      table("checkpoint", "When to save."),
      table("tracker", "Where metrics go."),
      table("model", "Settings of all roles."),
      table("performance", "How fast the run is."),
      nested("vsa", kVsa, std::size(kVsa)),
      unavailable("dit_precision", "set models.<role>.dtype instead"),
      unavailable("model_path", "set models.<role>.init_from instead"),
  };
  return list(kOptions);
}

std::vector<lb_option> performance_options() {
  static constexpr lb_option kOptions[] = {
      boolean("enabled", "true", "Whether the metrics perf/... and mem/... are made."),
      number("peak_tflops_per_gpu", nullptr, "(0, inf)",
             "Greatest TFLOP/s of one device in the compute dtype, for the share that is used."),
  };
  return list(kOptions);
}

std::vector<lb_option> optimizer_options() {
  static constexpr lb_option kOptions[] = {
      number("learning_rate", nullptr, "(0, inf)", "Before the schedule."),
      list_of(number("betas", "[0.9, 0.999]", "[0, 1)", "Decay of both moments.")),
      number("eps", "1e-8", "(0, inf)", "Added to the root of the second moment."),
      number("weight_decay", "0.0", "[0, inf)", "Decoupled, times the learning rate."),
      choice("no_decay", "\"none\"", kNoDecay,
             "Parameters without decay: none, or those that the network flags."),
      choice("lr_scheduler", "\"constant\"", kSchedules, "Schedule of the learning rate."),
      integer("lr_warmup_steps", "0", "[0, inf)", "Updates until the full rate."),
      integer("lr_num_cycles", "1", "[1, inf)", "Of cosine_with_restarts."),
      number("lr_power", "1.0", "(0, inf)", "Of polynomial."),
      number("min_lr_ratio", "0.1", "[0, 1]", "Of cosine_with_min_lr."),
      text("step_rules", "\"\"", "Of piecewise_constant: \"1:500,0.1:800,0.01\"."),
      fixed(boolean("fused", "true", "One pass over all weights of a role.")),
  };
  return list(kOptions);
}

std::vector<lb_option> ema_options() {
  static constexpr lb_option kOptions[] = {
      kEmaDecay,
      kEmaWarmup,
      integer("start_step", "0", "[0, inf)", "First step that is averaged."),
      number("initial_decay", "0.001", "[0, 1]", "With warmup = \"ramp\": of the flat steps."),
      number("ramp", "0.001", "[0, inf)",
             "With warmup = \"ramp\": what the decay gains with each update after the flat ones."),
      integer("flat_steps", "0", "[0, inf)",
              "With warmup = \"ramp\": updates with the initial decay."),
      kEmaUpdate,
      kEmaDevice,
  };
  return list(kOptions);
}

std::vector<lb_option> loop_options() {
  static constexpr lb_option kOptions[] = {
      required(integer("max_train_steps", nullptr, "[1, inf)", "Steps of the whole run.")),
      integer("gradient_accumulation_steps", "1", "[1, inf)", "Micro-batches of one update."),
  };
  return list(kOptions);
}

std::vector<lb_option> distributed_options() {
  static constexpr lb_option kOptions[] = {
      fixed(integer("num_gpus", "1", nullptr, "Processes in all.")),
      fixed(integer("hsdp_replicate_dim", "1", nullptr, "Copies of the weights.")),
      integer("hsdp_shard_dim", "1", nullptr, "Shards of the weights; -1: one for each process."),
      fixed(integer("sp_size", "1", nullptr, "Ranks that share a sequence.")),
      fixed(integer("tp_size", "1", nullptr, "Ranks that share a matrix.")),
      unavailable("pin_cpu_memory"),
      unavailable("reshard_after_forward"),
      unavailable("reduce_dtype"),
      unavailable("fsdp_modules_per_group"),
      unavailable("fsdp_symmetric_memory"),
  };
  return list(kOptions);
}

std::vector<lb_option> checkpoint_options() {
  static constexpr lb_option kOptions[] = {
      moved("output_dir", "run.output_dir"),
      text("resume_from_checkpoint", "\"\"",
           "A checkpoint to go on from, relative to the current folder, or \"latest\" of "
           "run.output_dir. Not together with another init_from than the one it was made with."),
      integer(
          "training_state_checkpointing_steps", "0", "[0, inf)",
          "Steps between checkpoints, and one at the end and when the run is stopped; 0: none."),
      integer("checkpoints_total_limit", "0", "[0, inf)",
              "Checkpoints to keep: the newest; 0: all."),
      boolean("no_save_optim", "false",
              "Leaves the optimizers' moments out: smaller, and a run cannot go on exactly."),
      boolean("no_load_optim", "false",
              "Goes on with fresh moments; counts of updates and learning rates go on."),
      boolean("allow_dataset_change", "false",
              "Goes on with other data, seed or order than the checkpoint was made with."),
  };
  return list(kOptions);
}

std::vector<lb_option> tracker_options() {
  static constexpr lb_option kOptions[] = {
      list_of(text("trackers", "[]", "Names of trackers, each with a table of its own.")),
      moved("run_name", "run.name"),
      unavailable("project_name"),
      unavailable("entity"),
  };
  return list(kOptions);
}

std::vector<lb_option> training_model_options() {
  static constexpr lb_option kOptions[] = {
      choice("enable_gradient_checkpointing_type", "\"none\"", kRecompute,
             "Of the roles that do not say it themselves."),
      forwarded("weighting_scheme", kOfNoiseHook),
      forwarded("logit_mean", kOfNoiseHook),
      forwarded("logit_std", kOfNoiseHook),
      forwarded("mode_scale", kOfNoiseHook),
      forwarded("precondition_outputs", "Taken by a method that can compare clean samples."),
      unavailable("moba_config"),
      fixed(boolean("enable_torch_compile", "false", "Compiling of networks.")),
      unavailable("torch_compile_kwargs"),
  };
  return list(kOptions);
}

std::vector<lb_option> grad_clip_options() {
  static constexpr lb_option kOptions[] = {
      number("max_grad_norm", "1.0", nullptr, "Greatest global norm; 0 or less: no clipping."),
      fixed(boolean("log_grad_norms", "true", "Norms are a metric of every role.")),
      fixed(number("norm_type", "2.0", "(0, inf]", "Order of the norm.")),
      fixed(boolean("error_if_nonfinite", "true", "Stop before a weight moves.")),
      fixed(choice("scope", "\"per_role\"", kClipScopes, "What has one norm.")),
  };
  return list(kOptions);
}

std::vector<lb_option> ema_callback_options() {
  static constexpr lb_option kOptions[] = {
      kEmaDecay,
      kEmaWarmup,
      integer("start_iter", "0", "[0, inf)", "First step that is averaged."),
      kEmaUpdate,
      kEmaDevice,
      unavailable("roles", "set models.<role>.ema for roles that differ"),
  };
  return list(kOptions);
}

}  // namespace limbeck
