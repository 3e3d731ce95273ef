// SPDX-License-Identifier: Apache-2.0
// A whole run for tests of the loop: a toy network, a toy method, and a callback and a tracker that
// write down what they are told. Nothing needs a plugin's file.
#pragma once

#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <unistd.h>

#include <ATen/ATen.h>

#include "core/base/error.hpp"
#include "core/plugin/registry.hpp"
#include "core/plugin/status.hpp"
#include "core/tensor/guard.hpp"
#include "core/tensor/handle.hpp"
#include "core/train/train_loop.hpp"
#include "toy_network.hpp"

namespace limbeck::testing {

enum : uint32_t { kNet, kSlow };

constexpr lb_role kRoles[] = {{"net", "Trained.", "test.toy/1", LB_ROLE_TRAINED, 0},
                              {"slow", "Follows.", "test.toy/1", LB_ROLE_SHADOW, kNet}};
constexpr lb_role kNeeds[] = {{"net", "Looked at.", "test.toy/1", 0, 0},
                              {"slow", "Looked at.", "test.toy/1", 0, 0}};

inline at::Tensor run_toy(const lb_models* models,
                          uint32_t role,
                          uint32_t flags,
                          const at::Tensor& x = at::sin(at::arange(12, at::kFloat)).view({3, 4})) {
  lb_batch in;
  in.put("x", x);
  lb_batch out;
  check(models->run(models, role, flags, &in, &out));
  return out.tensor("y");
}

// What a method that keeps a state has in it: each part changes the loss.
struct MethodState {
  int64_t calls = 0;
  double scale = 1.0;
  std::string letters;
  at::Tensor memory = at::ones({3});
  std::vector<std::string> rows;
};

// What the components of a test do and saw.
struct Diary {
  std::vector<std::string> events;                    // "step 3"
  std::vector<std::map<std::string, double>> values;  // of LB_ON_STEP
  std::function<void(const lb_event*)> on_event = [](auto*) {};
  // What the method makes of its loss, and of the network's output.
  std::function<at::Tensor(int64_t step, const at::Tensor& loss, const at::Tensor& y)> bend =
      [](int64_t, const at::Tensor& loss, const at::Tensor&) { return loss; };
  MethodState state;
  bool can_save = true;          // else the method's save() asks for another time
  std::vector<int64_t> tracked;  // steps of scalars()
  std::vector<std::string> names;
  int closed_with = -1;
};
inline Diary* diary = nullptr;

constexpr const char* kNames[] = {"start", "begin", "round", "step", "validate",
                                  "save",  "saved", "error", "end"};

inline lb_status* create_nothing(lb_state*, const lb_config*, void** out) {
  static int nothing;
  *out = &nothing;
  return nullptr;
}
inline void destroy_nothing(void*) {}

inline lb_status* plan_rounds(void*, int64_t, lb_plan* plan) {
  return guarded([&] {
    check(plan->round(plan, 2, LB_ROUND_OWN_DATA));
    check(plan->update(plan, kNet));
    check(plan->average(plan, kSlow, 0.5));
  });
}

inline lb_status* toy_loss(void*, const lb_step* step, lb_tensor** out) {
  return guarded([&] {
    const auto y = step->batch == nullptr
                       ? run_toy(step->models, kNet, 0)
                       : run_toy(step->models, kNet, 0, step->batch->tensor("x"));
    const auto loss = diary->bend(step->step, y.square().mean(), y);
    step->metrics->tensor(step->metrics, "loss", lend(loss), LB_MEAN);
    *out = give(loss);
  });
}

// The same with a state.
inline lb_status* remembering_loss(void* self, const lb_step* step, lb_tensor** out) {
  return guarded([&] {
    auto& state = diary->state;
    const double factor = state.scale + 0.1 * std::sin(static_cast<double>(state.calls)) +
                          0.01 * static_cast<double>(state.letters.size() + state.rows.size()) +
                          state.memory.sum().item<double>();
    lb_tensor* plain = nullptr;
    check(toy_loss(self, step, &plain));
    const auto loss = take(plain) * factor;
    ++state.calls;
    state.scale *= 0.9;
    state.letters += static_cast<char>('a' + state.calls % 26);
    state.memory = state.memory * 0.5 + loss.detach();
    state.rows.push_back(state.letters);
    *out = give(loss);
  });
}

inline lb_status* save_method(void*, lb_writer* writer) {
  if (!diary->can_save) {
    return make_status(LB_UNAVAILABLE, "not now");
  }
  return guarded([&] {
    const auto& state = diary->state;
    check(writer->integer(writer, "calls", state.calls));
    check(writer->number(writer, "scale", state.scale));
    check(writer->bytes(writer, "letters", state.letters.data(), state.letters.size(), LB_SAME));
    check(writer->tensor(writer, "buffer.memory", lend(state.memory), LB_SAME));
    auto inner = std::make_shared<lb_batch>();
    inner->put("rows", TextRows(state.rows));
    inner->put("memory", state.memory);
    lb_batch batch;
    batch.put("inner", std::shared_ptr<const lb_batch>(inner));
    batch.put("memory", state.memory);
    batch.put("scale", state.scale);
    check(writer->batch(writer, "past", &batch, LB_SAME));
  });
}

inline lb_status* load_method(void*, const lb_reader* reader) {
  return guarded([&] {
    auto& state = diary->state;
    check(reader->integer(reader, "calls", &state.calls));
    check(reader->number(reader, "scale", &state.scale));
    const void* data = nullptr;
    uint64_t size = 0;
    check(reader->bytes(reader, "letters", &data, &size));
    state.letters.assign(static_cast<const char*>(data), size);
    lb_tensor* memory = nullptr;
    check(reader->tensor(reader, "buffer.memory", &memory));
    state.memory = take(memory);
    lb_batch* past = nullptr;
    check(reader->batch(reader, "past", &past));
    const std::unique_ptr<lb_batch> owned(past);
    const auto& inner = *owned->find<std::shared_ptr<const lb_batch>>("inner");
    state.rows = *inner->find<TextRows>("rows");
    if (!at::equal(inner->tensor("memory"), state.memory) ||
        !at::equal(owned->tensor("memory"), state.memory) ||
        owned->number("scale", 0) != state.scale) {
      throw Error(Fault::kData, "the batch is another one");
    }
  });
}

inline lb_status* write_event(void*, const lb_event* event) {
  return guarded([&] {
    diary->events.push_back(std::string(kNames[event->kind]) + " " + std::to_string(event->step));
    if (event->kind == LB_ON_STEP) {
      auto& numbers = diary->values.emplace_back();
      for (const auto& [name, value] : event->values->entries) {
        numbers[name] = std::get<double>(value);
      }
    }
    diary->on_event(event);
  });
}

inline lb_status* open_diary(lb_state*, const lb_config*, const lb_tracked_run*, void** out) {
  *out = diary;
  return nullptr;
}
inline lb_status* track_step(
    void* self, int64_t step, const char* const* names, const double*, uint32_t count) {
  auto& book = *static_cast<Diary*>(self);
  book.tracked.push_back(step);
  book.names.insert(book.names.end(), names, names + count);
  return nullptr;
}
inline void close_diary(void* self, int32_t succeeded) {
  static_cast<Diary*>(self)->closed_with = succeeded;
}

template <class Vtable>
ComponentSpec component_spec(const char* key,
                             const char* kind,
                             const Vtable& vtable,
                             lb_component& table,
                             Component& component) {
  static const Library library = [] {
    static const lb_plugin plugin = [] {
      lb_plugin made{};
      made.id = "test.toy";
      return made;
    }();
    Library made;
    made.plugin = &plugin;
    return made;
  }();
  table.struct_size = sizeof(lb_component);
  table.kind = kind;
  table.name = "toy";
  table.vtable = &vtable;
  component = {&table, &library};
  ComponentSpec spec;
  spec.key = key;
  spec.component = &component;
  spec.config = std::make_shared<lb_config>();
  return spec;
}

struct ToyMethod {
  bool plans = true;  // else one round of as many micro-steps as the manifest says, on its data
  bool keeps_state = false;
};

inline ComponentSpec toy_method(const ToyMethod& options = {}) {
  static lb_method_vtable vtable = {sizeof(lb_method_vtable),
                                    0,
                                    LB_ROLES(kRoles),
                                    nullptr,
                                    create_nothing,
                                    destroy_nothing,
                                    nullptr,
                                    plan_rounds,
                                    toy_loss,
                                    nullptr,
                                    nullptr};
  vtable.plan = options.plans ? plan_rounds : nullptr;
  vtable.loss = options.keeps_state ? remembering_loss : toy_loss;
  vtable.save = options.keeps_state ? save_method : nullptr;
  vtable.load = options.keeps_state ? load_method : nullptr;
  static lb_component table;
  static Component component;
  return component_spec("method", "limbeck.method/1", vtable, table, component);
}

inline CallbackSpec toy_callback() {
  static const lb_callback_vtable vtable = {sizeof(lb_callback_vtable),
                                            0,
                                            LB_ROLES(kNeeds),
                                            ~uint64_t{0},
                                            create_nothing,
                                            destroy_nothing,
                                            write_event,
                                            nullptr,
                                            nullptr,
                                            nullptr};
  static lb_component table;
  static Component component;
  CallbackSpec spec;
  spec.component = component_spec("callbacks.toy", "limbeck.callback/1", vtable, table, component);
  spec.name = "toy";
  return spec;
}

inline ComponentSpec toy_tracker() {
  static const lb_tracker_vtable vtable = {
      sizeof(lb_tracker_vtable), 0, open_diary, track_step, nullptr, close_diary};
  static lb_component table;
  static Component component;
  return component_spec("training.tracker.toy", "limbeck.tracker/1", vtable, table, component);
}

// Samples x [4] that repeat after three.
struct Samples {
  static inline int64_t length = 3;
};
inline lb_status* open_samples(lb_state*, const lb_config*, const lb_source*, void** out) {
  return create_nothing(nullptr, nullptr, out);
}
inline lb_status* sample_fields(void*, lb_fields* out) {
  static const int64_t sizes[] = {4};
  static const lb_field fields[] = {{"x", sizes, LB_F32, 1, 0, 0}};
  *out = {sizeof(lb_field), 1, fields};
  return nullptr;
}
inline lb_status* read_sample(void*, int64_t index, lb_batch* sample) {
  return guarded([&] {
    sample->put("x", at::sin(at::arange(4, at::kFloat) + static_cast<double>(index % 3)));
  });
}

inline DataSpec toy_data(int64_t length, int64_t batch_size) {
  static const lb_dataset_vtable vtable = [] {
    lb_dataset_vtable v{};
    v.struct_size = sizeof(v);
    v.open = open_samples;
    v.close = destroy_nothing;
    v.length = [](void*) { return Samples::length; };
    v.fields = sample_fields;
    v.read = read_sample;
    return v;
  }();
  static lb_component table;
  static Component component;
  Samples::length = length;
  DataSpec data;
  data.dataset = component_spec("training.data", "limbeck.dataset/1", vtable, table, component);
  data.batch_size = batch_size;
  data.shuffle = false;
  return data;
}

// Endless samples x [4] that can be read only one after the other: `read` ignores the index.
struct Tape {
  int64_t next = 0;
};
inline DataSpec toy_stream(int64_t batch_size) {
  static const lb_dataset_vtable vtable = [] {
    lb_dataset_vtable v{};
    v.struct_size = sizeof(v);
    v.open = [](lb_state*, const lb_config*, const lb_source*, void** out) noexcept -> lb_status* {
      *out = new Tape;
      return nullptr;
    };
    v.close = [](void* self) noexcept { delete static_cast<Tape*>(self); };
    v.length = [](void*) noexcept { return int64_t{-1}; };
    v.fields = sample_fields;
    v.read = [](void* self, int64_t, lb_batch* sample) noexcept {
      return read_sample(nullptr, static_cast<Tape*>(self)->next++, sample);
    };
    v.save = [](void* self, lb_writer* writer) noexcept {
      return writer->integer(writer, "next", static_cast<Tape*>(self)->next);
    };
    v.load = [](void* self, const lb_reader* reader) noexcept {
      return reader->integer(reader, "next", &static_cast<Tape*>(self)->next);
    };
    return v;
  }();
  static lb_component table;
  static Component component;
  DataSpec data;
  data.dataset = component_spec("training.data", "limbeck.dataset/1", vtable, table, component);
  data.batch_size = batch_size;
  return data;
}

// A run of `steps` steps in a folder of its own, with the diary open.
class Training {
 public:
  explicit Training(int64_t steps) {
    std::string name = (std::filesystem::temp_directory_path() / "limbeck_loop_XXXXXX").string();
    manifest.run.output_dir = mkdtemp(name.data());
    manifest.run.name = "toy";
    manifest.loop.max_train_steps = steps;
    manifest.method = toy_method();
    manifest.callbacks = {toy_callback()};
    manifest.trackers = {toy_tracker()};
    manifest.roles = {toy_spec(true), toy_spec(false)};
    manifest.roles[1].name = "slow";
    manifest.roles[1].is_shadow = true;
    manifest.roles[1].shadow_of = "net";
    diary = &book;
  }
  ~Training() {
    diary = nullptr;
    std::filesystem::remove_all(manifest.run.output_dir);
  }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  // Goes on from `checkpoint` if there is one.
  void run(const ProfileSteps& profile = {},
           const std::optional<std::filesystem::path>& checkpoint = std::nullopt) {
    Run run(manifest);
    train(run, nlohmann::ordered_json::array(), checkpoint, profile);
  }

  Manifest manifest;
  Diary book;
};

inline std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) {
    text += (text.empty() ? "" : ", ") + word;
  }
  return text;
}

}  // namespace limbeck::testing
