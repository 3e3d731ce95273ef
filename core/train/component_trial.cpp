// SPDX-License-Identifier: Apache-2.0
// Components without a run: everything that can be asked of one with its default options, no
// networks and no data.
#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/text.hpp"
#include "core/plugin/host_table.hpp"
#include "core/plugin/status.hpp"
#include "core/tensor/batch.hpp"
#include "core/train/job.hpp"
#include "core/train/memory_state.hpp"
#include "core/train/run.hpp"

namespace limbeck {
namespace {

// Statuses of one trial, and the instances it made.
class Trial {
 public:
  explicit Trial(ComponentTrial& trial) : trial_(trial) {}

  template <class Vtable>
  const Vtable& vtable() const {
    return trial_.component->vtable<Vtable>();
  }
  lb_state* plugin() const { return trial_.component->library->state; }
  const lb_config* config() const { return trial_.config.get(); }
  const std::filesystem::path& scratch() const { return trial_.scratch; }
  uint32_t state_version() const { return trial_.component->table->state_version; }

  void fault(const std::string& what) { trial_.faults.push_back(what); }
  void note(const std::string& what) { trial_.notes.push_back(what); }
  void stage(const char* function) const { trial_.stage(cat("in ", function)); }

  // Calls a function of the plugin. The error of its status, or nothing. An exception that leaves
  // it is a fault.
  template <class F>
  std::optional<Error> call(const char* function, F&& body) {
    stage(function);
    lb_status* status = nullptr;
    try {
      status = std::forward<F>(body)();
    } catch (...) {
      status = status_of_escaped_exception();
      fault(cat(function, " lets an exception out, which the ABI forbids: ", status->message));
    }
    if (status == nullptr) {
      return std::nullopt;
    }
    return to_error(status);
  }

 private:
  ComponentTrial& trial_;
};

// create() and destroy() of the kinds whose create() takes options only.
template <class Vtable>
class TrialInstance {
 public:
  explicit TrialInstance(Trial& trial) : trial_(trial) {
    error_ = trial.call("create()", [&] {
      return trial.vtable<Vtable>().create(trial.plugin(), trial.config(), &self_);
    });
    if (error_ && self_ != nullptr) {
      trial.fault("create() failed and left something in `out`");
      self_ = nullptr;
    }
  }
  ~TrialInstance() {
    if (self_ != nullptr) {
      trial_.stage("destroy()");
      trial_.vtable<Vtable>().destroy(self_);
    }
  }
  TrialInstance(const TrialInstance&) = delete;
  TrialInstance& operator=(const TrialInstance&) = delete;

  void* self() const { return self_; }
  const std::optional<Error>& error() const { return error_; }

 private:
  Trial& trial_;
  void* self_ = nullptr;
  std::optional<Error> error_;
};

// What one instance saved, another loads, and saves again: both must be the same bits.
template <class Vtable>
void try_state(Trial& trial, void* self) {
  const auto& vtable = trial.vtable<Vtable>();
  if (vtable.save == nullptr) {
    return;
  }
  const auto save = [&](void* instance, MemoryState& state) {
    const auto error = trial.call("save()", [&] { return vtable.save(instance, state.writer()); });
    if (error) {
      trial.note(cat("its state was not tried: ", error->message()));
    }
    return !error.has_value();
  };
  MemoryState first;
  if (!save(self, first)) {
    return;
  }
  for (const auto& name : first.bad_names()) {
    trial.fault(cat("save() wrote '", name, "', which is no name [a-z0-9_.]+ or is there twice"));
  }
  const TrialInstance<Vtable> other(trial);
  const auto error = trial.call(
      "load()", [&] { return vtable.load(other.self(), first.reader(trial.state_version())); });
  if (error) {
    trial.fault(cat("load() refuses what save() wrote: ", error->message()));
    return;
  }
  MemoryState second;
  if (save(other.self(), second) && !first.difference(second).empty()) {
    trial.fault(cat("its state differs in '", first.difference(second),
                    "' after save(), load() and save()"));
  }
  // A checkpoint of something else: a status is right, a crash is not.
  MemoryState nothing;
  const TrialInstance<Vtable> third(trial);
  trial.call("load() of an empty state",
             [&] { return vtable.load(third.self(), nothing.reader(trial.state_version())); });
}

template <class Vtable>
void try_instances(Trial& trial) {
  const TrialInstance<Vtable> first(trial);
  if (first.error()) {
    trial.note(cat("create() refuses these options: ", first.error()->message()));
    return;
  }
  const TrialInstance<Vtable> second(trial);
  if (second.error()) {
    trial.fault(cat("a second instance cannot be made: ", second.error()->message()));
    return;
  }
  if constexpr (requires(const Vtable& vtable) { vtable.save; }) {
    try_state<Vtable>(trial, first.self());
  }
}

// ---- methods

// Writes down what plan() asks for.
class PlanRecord {
 public:
  PlanRecord() {
    plan_.struct_size = sizeof(plan_);
    plan_.ctx = this;
    plan_.round = [](lb_plan* plan, uint32_t micro_steps, uint32_t flags) {
      return of(plan).add(cat("round ", micro_steps, " ", flags));
    };
    plan_.update = [](lb_plan* plan, uint32_t role) { return of(plan).add(cat("update ", role)); };
    plan_.average = [](lb_plan* plan, uint32_t shadow, double decay) {
      return of(plan).add(cat("average ", shadow, " ", decay));
    };
  }
  PlanRecord(const PlanRecord&) = delete;
  PlanRecord& operator=(const PlanRecord&) = delete;

  lb_plan* table() { return &plan_; }
  const std::vector<std::string>& calls() const { return calls_; }

 private:
  static PlanRecord& of(const lb_plan* plan) { return *static_cast<PlanRecord*>(plan->ctx); }
  lb_status* add(std::string call) {
    calls_.push_back(std::move(call));
    return nullptr;
  }

  lb_plan plan_{};
  std::vector<std::string> calls_;
};

// plan() is asked ahead and again: the same step must give the same rounds.
void try_plan(Trial& trial) {
  const auto& vtable = trial.vtable<lb_method_vtable>();
  if (vtable.plan == nullptr || vtable.start != nullptr) {
    return;  // before start(), which needs networks, a method may not know its plan
  }
  const TrialInstance<lb_method_vtable> instance(trial);
  if (instance.error()) {
    return;
  }
  const auto calls_of = [&](int64_t step) {
    PlanRecord record;
    const auto error =
        trial.call("plan()", [&] { return vtable.plan(instance.self(), step, record.table()); });
    if (error) {
      trial.fault(cat("plan() of step ", step, " fails: ", error->message()));
    }
    return record.calls();
  };
  const auto first = calls_of(1);
  const auto later = calls_of(7);
  if (calls_of(1) != first || calls_of(7) != later) {
    trial.fault("plan() gives other rounds when it is asked for the same step again");
  }
  if (first.empty()) {
    trial.fault("plan() of step 1 has no round");
  }
}

// ---- networks

// Takes declarations, and refuses one of them if asked to.
class BuilderRecord {
 public:
  explicit BuilderRecord(size_t refused = 0) : refused_(refused) {
    builder_.struct_size = sizeof(builder_);
    builder_.ctx = this;
    builder_.unit = [](lb_builder* builder, const char* name, lb_unit* out) {
      return of(builder).take(cat("unit ", name), [&] { *out = ++of(builder).n_units_; });
    };
    builder_.param = [](lb_builder* builder, lb_unit unit, const lb_param_spec* spec,
                        lb_param* out) {
      auto& self = of(builder);
      if (unit > self.n_units_) {
        return make_status(LB_INVALID_ARGUMENT, cat("there is no unit ", unit));
      }
      return self.take(
          cat("param ", unit, " ", spec->name, " ", at::IntArrayRef(spec->sizes, spec->ndim)),
          [&] { *out = self.n_params_[unit]++; });
    };
    builder_.part = [](lb_builder* builder, const char* name, lb_unit* root) {
      return of(builder).take(cat("part ", name), [&] { *root = ++of(builder).n_units_; });
    };
    builder_.file = [](lb_builder*, const char*) -> const char* { return nullptr; };
  }
  BuilderRecord(const BuilderRecord&) = delete;
  BuilderRecord& operator=(const BuilderRecord&) = delete;

  lb_builder* table() { return &builder_; }
  const std::vector<std::string>& calls() const { return calls_; }

 private:
  static BuilderRecord& of(const lb_builder* builder) {
    return *static_cast<BuilderRecord*>(builder->ctx);
  }
  template <class F>
  lb_status* take(std::string call, F&& answer) {
    calls_.push_back(std::move(call));
    if (calls_.size() == refused_) {
      return make_status(LB_HOST_OOM, "refused to see what happens");
    }
    answer();
    return nullptr;
  }

  lb_builder builder_{};
  size_t refused_;  // from 1; 0: none
  lb_unit n_units_ = 0;
  std::map<lb_unit, lb_param> n_params_;
  std::vector<std::string> calls_;
};

// One network that was declared.
class TrialNetwork {
 public:
  explicit TrialNetwork(Trial& trial, size_t refused = 0) : record(refused), trial_(trial) {
    error = trial.call("create()", [&] {
      return vtable().create(trial.plugin(), trial.config(), record.table(), &self);
    });
  }
  ~TrialNetwork() {
    if (!error && self != nullptr) {
      trial_.stage("destroy()");
      vtable().destroy(self);
    }
  }
  TrialNetwork(const TrialNetwork&) = delete;
  TrialNetwork& operator=(const TrialNetwork&) = delete;

  const lb_model_vtable& vtable() const { return trial_.vtable<lb_model_vtable>(); }

  BuilderRecord record;
  void* self = nullptr;
  std::optional<Error> error;

 private:
  Trial& trial_;
};

void try_network(Trial& trial) {
  const TrialNetwork first(trial);
  if (first.error) {
    trial.note(cat("create() refuses these options: ", first.error->message()));
    return;
  }
  const TrialNetwork second(trial);
  if (second.record.calls() != first.record.calls()) {
    trial.fault("two instances with the same options declare other parameters");
  }
  // A declaration that the host refuses must be told, not passed over. A few are enough.
  const size_t count = first.record.calls().size();
  for (const size_t refused : std::set<size_t>{std::min<size_t>(count, 1), count / 2, count}) {
    if (refused > 0 && !TrialNetwork(trial, refused).error) {
      trial.fault(cat("create() succeeds although its declaration ", refused, " (",
                      first.record.calls()[refused - 1], ") was refused"));
    }
  }
  lb_batch facts;
  if (const auto error =
          trial.call("describe()", [&] { return first.vtable().describe(first.self, &facts); })) {
    trial.fault(cat("describe() fails: ", error->message()));
  }
}

// ---- data sets and trackers

void try_dataset(Trial& trial) {
  const auto& vtable = trial.vtable<lb_dataset_vtable>();
  lb_source source{};
  source.struct_size = sizeof(source);
  source.workers = 1;
  source.world = 1;
  void* self = nullptr;
  if (const auto error = trial.call(
          "open()", [&] { return vtable.open(trial.plugin(), trial.config(), &source, &self); })) {
    trial.note(cat("open() refuses these options: ", error->message()));
    return;
  }
  trial.stage("length()");
  if (vtable.length(self) < -1) {
    trial.fault(cat("length() is ", vtable.length(self), ", expected a count, or -1 for a stream"));
  }
  lb_fields fields{};
  if (const auto error = trial.call("fields()", [&] { return vtable.fields(self, &fields); })) {
    trial.fault(cat("fields() fails: ", error->message()));
  } else if (fields.count > 0 && (fields.items == nullptr || fields.stride < sizeof(lb_field))) {
    trial.fault(cat("fields() gives ", fields.count, " fields of stride ", fields.stride));
  }
  trial.stage("close()");
  vtable.close(self);
}

void try_tracker(Trial& trial) {
  const auto& vtable = trial.vtable<lb_tracker_vtable>();
  const std::string folder = trial.scratch().string();
  lb_tracked_run run{};
  run.struct_size = sizeof(run);
  run.id = "0123456789abcdef";
  run.name = "trial";
  run.directory = folder.c_str();
  run.manifest = "plugins = []\n";
  run.first_step = 1;
  void* self = nullptr;
  if (const auto error = trial.call(
          "open()", [&] { return vtable.open(trial.plugin(), trial.config(), &run, &self); })) {
    trial.note(cat("open() refuses these options: ", error->message()));
    return;
  }
  // What a run tells: numbers that are not finite, and names that are not ASCII, too.
  const std::array<const char*, 3> names = {"loss", "loss/mse", "gr\xc3\xb6sse"};
  const std::array<double, 3> values = {0.5, std::nan(""), 1e300};
  if (const auto error = trial.call("scalars()", [&] {
        return vtable.scalars(self, 1, names.data(), values.data(), names.size());
      })) {
    trial.fault(cat("scalars() fails: ", error->message()));
  }
  if (vtable.file != nullptr) {
    const std::string path = (trial.scratch() / "sample.txt").string();
    std::ofstream(path) << "a file\n";
    if (const auto error = trial.call("file()", [&] {
          return vtable.file(self, 1, "sample", "text/plain", path.c_str(), "A file.");
        })) {
      trial.fault(cat("file() fails: ", error->message()));
    }
  }
  trial.stage("close()");
  vtable.close(self, 1);
}

void try_kind(Trial& trial, std::string_view kind) {
  if (kind == "limbeck.method/1") {
    try_instances<lb_method_vtable>(trial);
    try_plan(trial);
  } else if (kind == "limbeck.prepare/1") {
    try_instances<lb_prepare_vtable>(trial);
  } else if (kind == "limbeck.loss/1") {
    try_instances<lb_loss_vtable>(trial);
  } else if (kind == "limbeck.callback/1") {
    try_instances<lb_callback_vtable>(trial);
  } else if (kind == "limbeck.attention/1") {
    try_instances<lb_attention_vtable>(trial);
  } else if (kind == "limbeck.dataset/1") {
    try_dataset(trial);
  } else if (kind == "limbeck.tracker/1") {
    try_tracker(trial);
  } else {
    try_network(trial);
  }
}

}  // namespace
}  // namespace limbeck

void limbeck_try_component(limbeck::ComponentTrial& trial) {
  limbeck::provide_services();
  trial.stage("in init() of its plugin");
  trial.registry->start(limbeck::host_table());
  limbeck::Trial state(trial);
  limbeck::try_kind(state, trial.component->kind());
  trial.stage("in shutdown() of its plugin");
  trial.registry->stop();
}
