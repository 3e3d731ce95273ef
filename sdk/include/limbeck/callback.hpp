// SPDX-License-Identifier: Apache-2.0
// Callbacks: code that runs between steps.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include <limbeck/component.hpp>
#include <limbeck/draft/sample.h>

namespace lb {
inline namespace v1 LB_HIDDEN {

// What happened, lent for the call. Random draws count in the event's step. [control]
class Event : public Draws {
 public:
  explicit Event(const lb_event* event)
      : Draws(event->step, 0),
        event_(event),
        facts_(Batch::view(event->facts)),
        values_(Batch::view(event->values)) {}

  lb_event_kind kind() const { return event_->kind; }
  int64_t step() const { return event_->step; }
  int64_t max_steps() const { return event_->max_steps; }
  // None in LB_ON_ERROR.
  Models models() const { return Models(event_->models); }
  // Numbers of the manifest, "run.output_dir", "run.name", "run.seed".
  const Batch& facts() const { return facts_; }
  // Metrics of the step, reduced over ranks; empty where there are none.
  const Batch& values() const { return values_; }
  // LB_ON_SAVED: the checkpoint's path. LB_ON_ERROR: the message. Else empty.
  std::string text() const { return event_->text == nullptr ? "" : event_->text; }

  // Reports a metric of this step.
  void log(const char* name, const Tensor& value, lb_reduce how = LB_MEAN) const {
    metrics()->tensor(metrics(), name, value.raw(), how);
  }
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  void log(const char* name, T value, lb_reduce how = LB_MEAN) const {
    metrics()->scalar(metrics(), name, static_cast<double>(value), how);
  }
  // Hands a file to the trackers, by the rank that has it. The host moves it to where media of this
  // run are kept.
  void file(const char* name,
            const char* media_type,
            const std::string& path,
            const std::string& caption = "") const {
    metrics()->file(metrics(), name, media_type, path.c_str(), caption.c_str());
  }
  // LB_WANT_ bits, granted at the end of this step if any rank asked.
  void request(uint32_t what) const { event_->request(event_, what); }

  // Rows of the callback's own data, else of the training set; -1: a stream. Of the entries, those
  // are sure to be there that the callback names in `reads`.
  int64_t length() const { return data()->length(data()); }
  Batch rows(const std::vector<int64_t>& indices) const {
    lb_batch* out = nullptr;
    check(data()->rows(data(), indices.data(), static_cast<uint32_t>(indices.size()), &out));
    return Batch::take(out);
  }
  // The next batch of the callback's own data.
  Batch next() const {
    lb_batch* out = nullptr;
    check(data()->next(data(), &out));
    return Batch::take(out);
  }

 private:
  const lb_data* data() const {
    if (event_->data == nullptr) {
      throw Error(LB_FAILED_PRECONDITION, "this event comes without data");
    }
    return event_->data;
  }
  lb_metrics* metrics() const {
    if (event_->metrics == nullptr) {
      throw Error(LB_FAILED_PRECONDITION, "this event comes without metrics");
    }
    return event_->metrics;
  }
  const lb_event* event_;
  Batch facts_;
  Batch values_;
};

// Base class. A subclass declares `static constexpr uint64_t events`, one LB_BIT(kind) for each
// kind it wants, and may declare `needs`, and `reads`: the entries of rows() and next() it uses. A
// data set need not read what nobody names. One that also has
// `void sample(const Event& event, const Batch& prompts)` and provides "limbeck.sample/1" answers
// `limbeck sample`.
class Callback {
 public:
  Callback() = default;
  Callback(const Callback&) = delete;
  Callback& operator=(const Callback&) = delete;
  virtual ~Callback() = default;

  // On every rank. [control]
  virtual void event(const Event& event) = 0;
  // State, between steps. Not overridden: stateless. [control]
  virtual void save(Writer&) {}
  virtual void load(const Reader&) {}
};

// Registers T under `name`; `doc` is Markdown whose first line is the summary.
template <class T>
const lb_component* callback(const char* name, const char* doc) {
  static const lb_callback_vtable vtable = [] {
    lb_callback_vtable v{};
    v.struct_size = sizeof(v);
    v.needs = detail::needs_table<T>();
    v.events = T::events;
    v.reads = detail::reads_list<T>();
    v.create = [](lb_state*, const lb_config* config, void** out) noexcept {
      return guard("create()", detail::component_name<T>,
                   [&] { *out = detail::make<T>(config).release(); });
    };
    v.destroy = detail::destroy<T>;
    v.event = [](void* self, const lb_event* event) noexcept {
      return guard("event()", detail::component_name<T>,
                   [&] { static_cast<T*>(self)->event(Event(event)); });
    };
    if constexpr (LB_OVERRIDES(T, Callback, save)) {
      v.save = detail::save<T>;
    }
    if constexpr (LB_OVERRIDES(T, Callback, load)) {
      v.load = detail::load<T>;
    }
    return v;
  }();
  if constexpr (requires(T & self, const Event& event, const Batch& prompts) {
                  self.sample(event, prompts);
                }) {
    static const lb_sample_vtable sample = [] {
      lb_sample_vtable v{};
      v.struct_size = sizeof(v);
      v.sample = [](void* self, const lb_event* event, const lb_batch* prompts) noexcept {
        return guard("sample()", detail::component_name<T>, [&] {
          const auto rows = Batch::view(prompts);
          static_cast<T*>(self)->sample(Event(event), rows);
        });
      };
      return v;
    }();
    return detail::component<T>(
        "limbeck.callback/1", name, doc, &vtable, [](const char* id) noexcept -> const void* {
          return std::strcmp(id, LB_SAMPLE_EXTENSION) == 0 ? &sample : nullptr;
        });
  } else {
    return detail::component<T>("limbeck.callback/1", name, doc, &vtable);
  }
}

}  // namespace v1
}  // namespace lb
