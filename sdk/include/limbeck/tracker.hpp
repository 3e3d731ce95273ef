// SPDX-License-Identifier: Apache-2.0
// Trackers: where metrics and media of a run go.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <limbeck/component.hpp>

namespace lb {
inline namespace v1 LB_HIDDEN {

// Base class. The constructor takes `(const Options&, const lb_tracked_run&)`, or the run alone;
// texts of the run are lent for the constructor. On rank 0 only; everything is called on one thread
// that the tracker has to itself, and may block. [worker]
//
// Only what the constructor throws is an error of the run. What a function throws is logged, and
//   Error(LB_UNAVAILABLE)  the call is repeated with the next one and at the end, before any other:
//                          the disk is full, the network is down. Leave nothing half done
//   anything else          what was to be kept is lost
class Tracker {
 public:
  Tracker() = default;
  Tracker(const Tracker&) = delete;
  Tracker& operator=(const Tracker&) = delete;
  virtual ~Tracker() = default;

  // The metrics of a step: names[i] has values[i].
  virtual void scalars(int64_t step, List<const char*> names, List<double> values) = 0;
  // A file that belongs to a step; `path` is where the host keeps it.
  virtual void file(int64_t step,
                    const std::string& name,
                    const std::string& media_type,
                    const std::string& path,
                    const std::string& caption) {
    static_cast<void>(step), static_cast<void>(name), static_cast<void>(media_type);
    static_cast<void>(path), static_cast<void>(caption);
  }
  // The last call; anything that is held back is written now. Must not fail.
  virtual void close(bool succeeded) { static_cast<void>(succeeded); }
};

// Registers T under `name`; `doc` is Markdown whose first line is the summary.
template <class T>
const lb_component* tracker(const char* name, const char* doc) {
  static const lb_tracker_vtable vtable = [] {
    lb_tracker_vtable v{};
    v.struct_size = sizeof(v);
    v.open = [](lb_state*, const lb_config* config, const lb_tracked_run* run,
                void** out) noexcept {
      return guard("open()", detail::component_name<T>,
                   [&] { *out = detail::make<T>(config, *run).release(); });
    };
    v.scalars = [](void* self, int64_t step, const char* const* names, const double* values,
                   uint32_t count) noexcept {
      return guard("scalars()", detail::component_name<T>, [&] {
        static_cast<T*>(self)->scalars(step, {names, count}, {values, count});
      });
    };
    v.file = [](void* self, int64_t step, const char* file_name, const char* media_type,
                const char* path, const char* caption) noexcept {
      return guard("file()", detail::component_name<T>, [&] {
        static_cast<T*>(self)->file(step, file_name, media_type, path,
                                    caption == nullptr ? "" : caption);
      });
    };
    v.close = [](void* self, int32_t succeeded) noexcept {
      const std::unique_ptr<T> tracker(static_cast<T*>(self));
      report(guard("close()", detail::component_name<T>, [&] { tracker->close(succeeded != 0); }));
    };
    return v;
  }();
  return detail::component<T>("limbeck.tracker/1", name, doc, &vtable);
}

}  // namespace v1
}  // namespace lb
