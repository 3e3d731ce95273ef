// SPDX-License-Identifier: Apache-2.0
// Every key that the documentation of manifests names, and those that users know from other
// trainers: it has an effect, or it is an error that says so. None is ignored and none is unknown.
#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include <doctest/doctest.h>

#include "core/manifest/document.hpp"
#include "tests/unit/manifest_files.hpp"

namespace {

using limbeck::test::ManifestFolder;

enum class Kind {
  kBuilt,        // the value is taken
  kFixed,        // the value is taken, another one is "not available in this version"
  kUnavailable,  // the key is "not available in this version"
  kForwarded,    // components take it; an error where none does
};

struct Documented {
  const char* key;
  const char* value;  // a good one, as TOML
  Kind kind;
  const char* other = nullptr;  // kFixed: a value of the right type that is not available
};

constexpr Kind kBuilt = Kind::kBuilt;
constexpr Kind kFixed = Kind::kFixed;
constexpr Kind kUnavailable = Kind::kUnavailable;
constexpr Kind kForwarded = Kind::kForwarded;

const std::vector<Documented> kKeys = {
    {"run.name", "\"n\"", kBuilt},
    {"run.output_dir", "\"/tmp/o\"", kBuilt},
    {"run.seed", "3", kBuilt},
    {"run.device", "\"cpu\"", kBuilt},
    {"run.threads", "2", kBuilt},
    {"run.max_wall_time", "\"4h30m\"", kBuilt},
    {"run.log_every_steps", "5", kBuilt},
    {"run.replay", "\"draws.safetensors\"", kBuilt},

    {"models.student.type", "\"toy\"", kBuilt},
    {"models.student._target_", "\"a.b.C\"", kUnavailable},
    {"models.student.plugin", "\"a\"", kUnavailable},
    {"models.student.init_from", "\"weights\"", kBuilt},
    {"models.student.config", "{ width = 16 }", kBuilt},
    {"models.student.trainable", "true", kBuilt},
    {"models.student.dtype", "\"bf16\"", kBuilt},
    {"models.student.compute_dtype", "\"fp32\"", kBuilt},
    {"models.student.disable_custom_init_weights", "true", kUnavailable},
    {"models.student.flow_shift", "3.0", kUnavailable},
    {"models.student.enable_gradient_checkpointing_type", "\"full\"", kBuilt},
    {"models.student.transformer_override_safetensor", "\"a.safetensors\"", kUnavailable},
    {"models.student.transformer_2", "\"a\"", kUnavailable},
    {"models.student.attention_backend", "\"a\"", kUnavailable},
    {"models.student.cpu_offload", "\"none\"", kUnavailable},
    {"models.student.adapters", "[\"adapter\"]", kBuilt},
    {"models.student.lora.enable", "true", kBuilt},
    {"models.student.lora.rank", "8", kBuilt},
    {"models.student.lora.alpha", "8", kBuilt},
    {"models.student.lora.target_modules", "[\"to_q\"]", kBuilt},
    {"models.student.lora.use_rslora", "true", kBuilt},
    {"models.student.lora.init", "\"gaussian\"", kBuilt},
    {"models.student.lora.dropout", "0.1", kUnavailable},
    {"models.student.optimizer.learning_rate", "1e-4", kBuilt},
    {"models.student.optimizer.betas", "[0, 0.9]", kBuilt},
    {"models.student.ema.decay", "0.9", kBuilt},
    {"models.student.ema.warmup", "\"ratio\"", kBuilt},
    {"models.student.ema.initial_decay", "0.5", kBuilt},
    {"models.student.ema.ramp", "0.1", kBuilt},
    {"models.student.ema.flat_steps", "3", kBuilt},
    {"models.student.ema.start_step", "2", kBuilt},
    {"models.student.ema.update", "\"on_role_step\"", kFixed, "\"every_step\""},
    {"models.student.ema.device", "\"cpu\"", kUnavailable},

    {"method.type", "\"pair\"", kBuilt},
    {"method._target_", "\"a.b.C\"", kUnavailable},
    {"method.plugin", "\"a\"", kUnavailable},
    {"method.roles", "{}", kBuilt},
    {"prepare[0].type", "\"noise\"", kBuilt},
    {"prepare[0].roles", "{}", kBuilt},
    {"prepare[0]._target_", "\"a.b.C\"", kUnavailable},
    {"losses[0].type", "\"squared\"", kBuilt},
    {"losses[0].weight", "0.5", kBuilt},
    {"losses[0].roles", "{}", kBuilt},

    {"training.distributed.num_gpus", "1", kFixed, "8"},
    {"training.distributed.tp_size", "1", kFixed, "2"},
    {"training.distributed.sp_size", "1", kFixed, "2"},
    {"training.distributed.hsdp_replicate_dim", "1", kFixed, "2"},
    {"training.distributed.hsdp_shard_dim", "-1", kFixed, "2"},
    {"training.distributed.pin_cpu_memory", "true", kUnavailable},
    {"training.distributed.reshard_after_forward", "true", kUnavailable},
    {"training.distributed.reduce_dtype", "\"fp32\"", kUnavailable},
    {"training.distributed.fsdp_modules_per_group", "1", kUnavailable},
    {"training.distributed.fsdp_symmetric_memory", "true", kUnavailable},

    {"training.data.type", "\"clips\"", kBuilt},
    {"training.data.data_path", "\"a\"", kBuilt},
    {"training.data.preprocessed_data_type", "\"t2v\"", kForwarded},
    {"training.data.train_batch_size", "2", kBuilt},
    {"training.data.dataloader_num_workers", "1", kBuilt},
    {"training.data.shuffle", "false", kBuilt},
    {"training.data.shuffle_window", "8", kBuilt},
    {"training.data.order", "\"reference\"", kBuilt},
    {"training.data.on_error", "\"skip\"", kBuilt},
    {"training.data.training_cfg_rate", "0.2", kBuilt},
    {"training.data.seed", "7", kBuilt},
    {"training.data.num_height", "64", kBuilt},
    {"training.data.num_width", "64", kBuilt},
    {"training.data.num_latent_t", "5", kBuilt},
    {"training.data.num_frames", "17", kBuilt},

    {"training.optimizer.learning_rate", "1e-4", kBuilt},
    {"training.optimizer.betas", "[0.9, 0.99]", kBuilt},
    {"training.optimizer.weight_decay", "0.1", kBuilt},
    {"training.optimizer.no_decay", "\"flagged\"", kBuilt},
    {"training.optimizer.lr_scheduler", "\"linear\"", kBuilt},
    {"training.optimizer.lr_warmup_steps", "3", kBuilt},
    {"training.optimizer.lr_num_cycles", "2", kBuilt},
    {"training.optimizer.lr_power", "2.0", kBuilt},
    {"training.optimizer.min_lr_ratio", "0.2", kBuilt},
    {"training.optimizer.step_rules", "\"1:10,0.1\"", kBuilt},
    {"training.optimizer.eps", "1e-7", kBuilt},
    {"training.optimizer.fused", "true", kFixed, "false"},

    {"training.loop.max_train_steps", "50", kBuilt},
    {"training.loop.gradient_accumulation_steps", "2", kBuilt},

    {"training.checkpoint.output_dir", "\"/tmp/o\"", kBuilt},
    {"training.checkpoint.resume_from_checkpoint", "\"latest\"", kBuilt},
    {"training.checkpoint.training_state_checkpointing_steps", "100", kBuilt},
    {"training.checkpoint.checkpoints_total_limit", "3", kBuilt},
    {"training.checkpoint.no_save_optim", "true", kBuilt},
    {"training.checkpoint.no_load_optim", "true", kBuilt},
    {"training.checkpoint.allow_dataset_change", "true", kBuilt},

    {"training.tracker.trackers", "[\"lines\"]", kBuilt},
    {"training.tracker.entity", "\"e\"", kUnavailable},
    {"training.tracker.project_name", "\"p\"", kUnavailable},
    {"training.tracker.run_name", "\"r\"", kBuilt},

    {"training.performance.enabled", "false", kBuilt},
    {"training.performance.peak_tflops_per_gpu", "1.0", kBuilt},

    {"training.model.weighting_scheme", "\"uniform\"", kForwarded},
    {"training.model.logit_mean", "0.0", kForwarded},
    {"training.model.logit_std", "1.0", kForwarded},
    {"training.model.mode_scale", "1.0", kForwarded},
    {"training.model.precondition_outputs", "true", kForwarded},
    {"training.model.moba_config", "{ a = 1 }", kUnavailable},
    {"training.model.enable_gradient_checkpointing_type", "\"full\"", kBuilt},
    {"training.model.enable_torch_compile", "false", kFixed, "true"},
    {"training.model.torch_compile_kwargs", "{ a = 1 }", kUnavailable},

    {"training.vsa.sparsity", "0.5", kUnavailable},
    {"training.vsa.decay_rate", "0.1", kUnavailable},
    {"training.vsa.decay_interval_steps", "10", kUnavailable},
    {"training.vsa.cache_tile_buf", "true", kUnavailable},
    {"training.dit_precision", "\"fp32\"", kUnavailable},
    {"training.model_path", "\"a\"", kUnavailable},

    {"callbacks.grad_clip.max_grad_norm", "0.5", kBuilt},
    {"callbacks.grad_clip.log_grad_norms", "true", kFixed, "false"},
    {"callbacks.grad_clip.norm_type", "2.0", kFixed, "inf"},
    {"callbacks.grad_clip.error_if_nonfinite", "true", kFixed, "false"},
    {"callbacks.grad_clip.scope", "\"per_role\"", kFixed, "\"global\""},
    {"callbacks.ema.decay", "0.9", kBuilt},
    {"callbacks.ema.start_iter", "2", kBuilt},
    {"callbacks.ema.warmup", "\"ramp\"", kBuilt},
    {"callbacks.ema.update", "\"on_role_step\"", kFixed, "\"every_step\""},
    {"callbacks.ema.device", "\"cpu\"", kUnavailable},
    {"callbacks.ema.roles", "[\"student\"]", kUnavailable},
    {"callbacks.beep.every_steps", "0", kBuilt},
    {"callbacks.beep.type", "\"beep\"", kBuilt},
    {"callbacks.beep.roles", "{}", kBuilt},
    {"callbacks.beep._target_", "\"a.b.C\"", kUnavailable},

    {"pipeline.flow_shift", "3", kBuilt},
    {"pipeline.num_inference_steps", "20", kBuilt},
    {"pipeline.guidance_scale", "3.5", kBuilt},
    {"pipeline.sampler", "\"euler\"", kUnavailable},
    {"pipeline.dit_config.quant_config", "\"q\"", kUnavailable},
    {"pipeline.dit_config.local_attn_size", "3", kUnavailable},
    {"pipeline.dit_config.sink_size", "1", kUnavailable},
    {"pipeline.embedded_cfg_scale", "6.0", kUnavailable},
    {"pipeline.is_causal", "false", kUnavailable},
    {"pipeline.vae_tiling", "true", kUnavailable},
    {"pipeline.vae_sp", "true", kUnavailable},
    {"pipeline.disable_autocast", "false", kUnavailable},
};

// A manifest in which every key has somebody who takes it.
const std::string kFull = R"(plugins = ["good_study", "good_solo"]
[models.student]
type = "toy"
config.width = 16
lora = { enable = true, rank = 2 }
ema = { warmup = "ramp" }
[models.teacher]
type = "toy"
config.width = 16
[method]
type = "pair"
[[prepare]]
type = "noise"
[[prepare]]
type = "drop"
[[losses]]
type = "squared"
[training.data]
type = "clips"
data_path = "a"
[training.optimizer]
learning_rate = 1e-3
[training.loop]
max_train_steps = 100
[callbacks.beep]
)";

std::string fault_of(ManifestFolder& folder, const std::string& key, const std::string& value) {
  std::string set = key;
  set += '=';
  return folder.fault(kFull, {set + value});
}

void write_adapter(const ManifestFolder& folder) {
  limbeck::write_file(
      folder.path() / "adapter/adapter_config.json",
      R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["to_q"]})");
  limbeck::write_file(folder.path() / "adapter/adapter_model.safetensors", "");
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("documented keys: each is built, or an error that says it is not available") {
  ManifestFolder folder;
  std::filesystem::create_directories(folder.path() / "weights");
  limbeck::write_file(folder.path() / "draws.safetensors", "");
  write_adapter(folder);
  REQUIRE(folder.fault(kFull) == "");
  for (const auto& documented : kKeys) {
    CAPTURE(documented.key);
    const std::string fault = fault_of(folder, documented.key, documented.value);
    CHECK_FALSE(says(fault, "unknown"));
    if (documented.kind == kUnavailable) {
      CHECK(says(fault, "is not available in this version"));
    } else if (documented.kind == kForwarded) {
      CHECK(says(fault, "has no effect: nothing in use takes it"));
    } else {
      CHECK(fault == "");
    }
    if (documented.kind == kFixed) {
      CHECK(says(fault_of(folder, documented.key, documented.other),
                 "is not available in this version; expected "));
    }
  }
}

TEST_CASE("documented keys: the comparison would notice a key that nobody knows") {
  ManifestFolder folder;
  CHECK(says(fault_of(folder, "run.sed", "1"), "unknown key \"run.sed\""));
  CHECK(says(fault_of(folder, "training.data.num_frame", "1"), "unknown key"));
}

// The keys that the documentation of the host's tables names: first in a row of a table, or in a
// list of what is not available.
std::set<std::string> written_keys() {
  limbeck::Registry none;
  std::istringstream lines(limbeck::to_markdown(none));
  std::set<std::string> keys;
  for (std::string line; std::getline(lines, line);) {
    const bool is_row = line.starts_with("| `");
    const bool is_list = line.starts_with("Known, and not available");
    for (size_t at = line.find('`'); (is_row || is_list) && at != std::string::npos;) {
      const size_t end = line.find('`', at + 1);
      keys.insert(line.substr(at + 1, end - at - 1));
      at = is_row ? std::string::npos : line.find(", `", end);
      at = at == std::string::npos ? at : at + 2;
    }
  }
  return keys;
}

// The other way round: a key that is added to the tables is added here too.
TEST_CASE("documented keys: the list has every key of the host's tables") {
  std::set<std::string> listed = {"plugins", "max_skipped"};
  for (const auto& documented : kKeys) {
    std::istringstream names(documented.key);
    for (std::string name; std::getline(names, name, '.');) {
      listed.insert(name.substr(0, name.find('[')));
    }
  }
  const auto written = written_keys();
  CHECK(written.size() > 80);
  for (const auto& key : written) {
    CAPTURE(key);
    CHECK(listed.count(key) == 1);
  }
}

// ---- each key that is taken changes something

// A loaded manifest as text: what the rest of core reads of it, less what repeats its text
// (`resolved`, `explained`) and the numbers for plugins (`facts`).
class Typed {
 public:
  explicit Typed(const limbeck::Manifest& m) {
    put(m.run.name, m.run.output_dir.string(), m.run.seed, m.run.device, m.run.threads,
        m.run.log_every_steps, m.run.replay.string(), m.run.max_wall_seconds);
    const auto& c = m.checkpoint;
    put(c.resume_from, c.every_steps, c.total_limit, c.saves_optimizer, c.loads_optimizer,
        c.allows_data_change);
    for (const auto& role : m.roles) {
      put(role.name, role.init_from.string(), role.is_trained, role.is_shadow, role.shadow_of,
          static_cast<int>(role.dtype), role.compute_dtype.has_value(),
          static_cast<int>(role.recompute));
      put(role.model);
      const auto& o = role.optimizer;
      put(o.learning_rate, o.beta1, o.beta2, o.eps, o.weight_decay, o.decays_flagged,
          o.lr_scheduler, o.lr_warmup_steps, o.lr_num_cycles, o.lr_power, o.min_lr_ratio,
          o.step_rules);
      const auto ema = role.ema.value_or(limbeck::EmaSpec{});
      put(role.ema.has_value(), ema.decay, static_cast<int>(ema.warmup), ema.start_step,
          ema.initial_decay, ema.ramp, ema.flat_steps);
      for (const auto& adapter : role.adapters) {
        put(adapter.folder.string(), adapter.config.to_json(""));
      }
      put(static_cast<int>(role.adapter_init));
    }
    put(m.method);
    for (const auto& hook : m.prepare) {
      put(hook);
    }
    for (const auto& loss : m.losses) {
      put(loss.component);
      put(loss.weight);
    }
    for (const auto& callback : m.callbacks) {
      put(callback.component);
      put(callback.name, callback.every_steps);
    }
    for (const auto& tracker : m.trackers) {
      put(tracker);
    }
    if (m.data) {
      put(m.data->dataset);
      put(m.data->batch_size, m.data->workers, m.data->shuffle, m.data->window,
          m.data->is_reference_order, m.data->max_skipped.value_or(-1));
    }
    put(m.loop.max_train_steps, m.loop.gradient_accumulation_steps, m.performance.is_enabled,
        m.performance.peak_tflops_per_gpu.value_or(-1), m.clip.max_grad_norm.value_or(-1),
        m.distributed.replicate, m.distributed.shard, m.distributed.sequence);
  }

  std::string text() const { return text_.str(); }

 private:
  template <class... T>
  void put(const T&... values) {
    ((text_ << values << '\n'), ...);
  }
  void put(const limbeck::ComponentSpec& spec) {
    put(spec.key, spec.component->name());
    put(spec.config->table);
    for (const auto& [theirs, ours] : spec.roles) {
      put(theirs, ours);
    }
  }
  void put(const limbeck::ConfigValue::Table& table) {
    for (const auto& [key, value] : table) {
      put(key);
      put(value);
    }
  }
  void put(const limbeck::ConfigValue& value) {
    std::visit(
        [this](const auto& held) {
          using Held = std::decay_t<decltype(held)>;
          if constexpr (std::is_same_v<Held, limbeck::ConfigValue::List>) {
            for (const auto& item : held) {
              put(item);
            }
          } else {
            put(held);
          }
        },
        value.value);
  }

  std::ostringstream text_;
};

// Whether a source of core or of a shipped plugin asks for this number of a manifest.
bool is_read(const std::string& fact) {
  namespace fs = std::filesystem;
  const std::string quoted = '"' + fact + '"';
  for (const char* folder : {"/core/train", "/plugins"}) {
    for (const auto& entry :
         fs::recursive_directory_iterator(std::string(LIMBECK_SOURCE_DIR) + folder)) {
      if (entry.path().extension() == ".cpp" && says(limbeck::read_file(entry.path()), quoted)) {
        return true;
      }
    }
  }
  return false;
}

TEST_CASE("documented keys: each that is taken changes what the run reads") {
  ManifestFolder folder;
  std::filesystem::create_directories(folder.path() / "weights");
  limbeck::write_file(folder.path() / "draws.safetensors", "");
  write_adapter(folder);
  const auto plain = folder.load(kFull);
  // Values that say what is so without them, or that a test of their own has.
  const std::set<std::string> same = {
      "models.student.type",       "models.student.config", "models.student.lora.enable",
      "models.student.trainable",  "method.type",           "method.roles",
      "prepare[0].type",           "prepare[0].roles",      "losses[0].type",
      "losses[0].roles",           "training.data.type",    "training.data.data_path",
      "callbacks.ema.warmup",      "callbacks.beep.type",   "callbacks.beep.roles",
      "callbacks.beep.every_steps"};
  for (const auto& documented : kKeys) {
    if (documented.kind != kBuilt || same.count(documented.key) != 0) {
      continue;
    }
    CAPTURE(documented.key);
    const auto changed = folder.load(kFull, {std::string(documented.key) + "=" + documented.value});
    if (Typed(changed).text() != Typed(plain).text()) {
      continue;
    }
    std::vector<std::string> facts;
    for (const auto& [name, value] : changed.facts) {
      const auto before = plain.facts.find(name);
      if (before == plain.facts.end() || before->second != value) {
        facts.push_back(name);
      }
    }
    REQUIRE(facts.size() == 1);
    CHECK(is_read(facts.front()));
  }
  CHECK_FALSE(is_read("pipeline.sampler"));
}
