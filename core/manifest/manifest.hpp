// SPDX-License-Identifier: Apache-2.0
// The manifest as typed values: what load_manifest() makes of a TOML file, and what the rest of
// core reads. Nothing here changes after loading.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <limbeck/abi.h>

#include "core/base/export.hpp"
#include "core/manifest/config.hpp"
#include "core/manifest/diagnostics.hpp"
#include "core/plugin/registry.hpp"
#include "core/weights/adapters.hpp"

namespace limbeck {

// One use of a component: a checked table of its options, and where it stands.
struct ComponentSpec {
  std::string key;  // "method", "prepare[0]", "callbacks.validation", "models.x"
  Position at;
  const Component* component = nullptr;  // never null in a loaded manifest
  std::shared_ptr<const lb_config> config;
  // The component's name of a role -> the manifest's name, from `roles = { a = "b" }`. Names that
  // are left out stand for themselves.
  std::map<std::string, std::string> roles;
};

enum class Precision { kFloat32, kBFloat16, kFloat64 };

struct OptimizerSpec {  // AdamW
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decays_flagged = true;  // false: parameters that the model flags as such are not decayed
  std::string lr_scheduler = "constant";
  int64_t lr_warmup_steps = 0;
  int64_t lr_num_cycles = 1;
  double lr_power = 1.0;
  double min_lr_ratio = 0.1;
  std::string step_rules;
};

enum class EmaWarmup { kConstant, kRatio, kPower, kRamp };

struct EmaSpec {
  double decay = 0.9999;  // [0, 1)
  EmaWarmup warmup = EmaWarmup::kConstant;
  int64_t start_step = 0;  // first step (from 1) whose update is averaged; earlier ones reset it
  // Of kRamp: decay of the first `flat_steps` updates, then what each adds, from 0.
  double initial_decay = 0.001;  // [0, 1]
  double ramp = 0.001;           // >= 0
  int64_t flat_steps = 0;
};

enum class Recompute { kKeep, kFull };

// Low-rank adapters of a role.
struct AdapterSpec {
  AdapterConfig config;
  std::filesystem::path folder;  // absolute, as PEFT writes it; empty: they begin fresh
};

enum class AdapterInit { kKaimingUniform, kGaussian };

struct RoleSpec {
  std::string name;
  Position at;
  ComponentSpec model;              // its config: the inline table over config.json over defaults
  std::filesystem::path init_from;  // absolute; empty: initialised from `run.seed` and the name
  bool is_trained = false;
  bool is_shadow = false;
  std::string shadow_of;                   // name of a role, if is_shadow
  Precision dtype = Precision::kFloat32;   // of the weights in memory
  std::optional<Precision> compute_dtype;  // empty: decided by device and dtype
  Recompute recompute = Recompute::kKeep;
  OptimizerSpec optimizer;  // [training.optimizer] with the role's own keys over it
  std::optional<EmaSpec> ema;
  // Empty: none. Else those of each part of the network, or fresh ones for all parts. A trained
  // role with adapters trains nothing else.
  std::vector<AdapterSpec> adapters;
  AdapterInit adapter_init = AdapterInit::kKaimingUniform;  // of fresh ones
};

struct LossSpec {
  ComponentSpec component;
  double weight = 1.0;
};

struct CallbackSpec {
  ComponentSpec component;
  std::string name;         // [callbacks.<name>]
  int64_t every_steps = 0;  // of LB_ON_VALIDATE; 0: never
};

struct DataSpec {
  ComponentSpec dataset;
  int64_t batch_size = 1;  // samples of one micro-batch of one data-parallel rank
  int64_t workers = 0;     // reading threads; 0: the training thread reads
  bool shuffle = true;
  int64_t window = 64;              // runs that are shuffled together
  bool is_reference_order = false;  // if shuffled: as torch.randperm(seed), in every epoch
  // Samples that may be unreadable, others taking their places; empty: the first one ends the run.
  std::optional<int64_t> max_skipped;
};

struct RunSpec {
  std::string name;
  std::filesystem::path output_dir;  // absolute
  uint64_t seed = 0;
  std::string device = "auto";  // auto, cpu, cuda
  int64_t threads = 0;          // 0: all processors this process may use
  int64_t log_every_steps = 10;
  std::filesystem::path replay;  // absolute; recorded draws for tests and benches; or empty
  double max_wall_seconds = 0;   // 0: no limit
};

struct LoopSpec {
  int64_t max_train_steps = 0;
  int64_t gradient_accumulation_steps = 1;
};

struct CheckpointSpec {
  std::string resume_from;      // "latest", or an absolute path; empty: from the beginning
  int64_t every_steps = 0;      // 0: no checkpoint is written
  int64_t total_limit = 0;      // newest ones to keep; 0: all
  bool saves_optimizer = true;  // its moments
  bool loads_optimizer = true;
  bool allows_data_change = false;
};

struct PerformanceSpec {
  bool is_enabled = true;                     // metrics perf/... and mem/...
  std::optional<double> peak_tflops_per_gpu;  // of one device; empty: unknown
};

struct ClipSpec {                             // [callbacks.grad_clip]
  std::optional<double> max_grad_norm = 1.0;  // empty: no clipping
};

struct DistributedSpec {
  int64_t replicate = 1;
  int64_t shard = 1;
  int64_t sequence = 1;
};

struct LIMBECK_API Manifest {
  std::filesystem::path path;  // as given
  RunSpec run;
  std::vector<RoleSpec> roles;  // in manifest order
  ComponentSpec method;
  std::vector<ComponentSpec> prepare;
  std::vector<LossSpec> losses;
  std::vector<CallbackSpec> callbacks;
  std::vector<ComponentSpec> trackers;
  std::optional<DataSpec> data;
  LoopSpec loop;
  CheckpointSpec checkpoint;
  PerformanceSpec performance;
  ClipSpec clip;
  DistributedSpec distributed;
  // Every number and truth value of [pipeline], [training.data] and [training.loop]:
  // "pipeline.flow_shift", "data.train_batch_size", "loop.max_train_steps".
  std::map<std::string, double> facts;
  // Folders of weights that are not there, of a manifest that could be checked without them
  // (ManifestOptions::defers_weights): a run needs them.
  Diagnostics missing;
  std::vector<std::string> secret_keys;  // options whose values are written nowhere: "method.token"
  std::string resolved;                  // TOML with every default filled in
  std::string explained;                 // the same, with where each value is from in a comment

  const RoleSpec* role(const std::string& name) const;  // nullptr: no such role
};

struct ManifestOptions {
  std::vector<std::string> set;      // "key=value", applied over the file
  std::filesystem::path output_dir;  // --override-output-dir; empty: none
  bool is_strict = false;            // plugins that other users could replace are refused
  // False: files and folders that the manifest names need not be there, and of networks whose
  // folder is missing not every option is known.
  bool needs_files = true;
  // With needs_files: a folder of weights that is not there is no error and stands in
  // Manifest::missing, if the manifest has the network's config.
  bool defers_weights = false;
};

// Parses, loads the plugins it names into `registry`, checks every table against its options and
// every rule that needs no weights and no data, and fills in defaults. All faults are collected
// and thrown together as Error(kManifest); nothing is created before. Runs no code of libtorch
// unless a plugin shares it. [control]
LIMBECK_API Manifest load_manifest(const std::filesystem::path& path,
                                   const ManifestOptions& options,
                                   Registry& registry);

}  // namespace limbeck
