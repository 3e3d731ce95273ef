// SPDX-License-Identifier: Apache-2.0
// Where the time of a run goes. A Scope names a stretch of a function: while recording is on, it
// becomes a box of a trace that Perfetto and chrome://tracing show; while it is off, a Scope costs
// one branch. A Timed scope also adds its seconds to a sum, always.
//
//   const profile::Scope scope("round", "round");
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/export.hpp"

namespace limbeck::profile {

// ---- scopes

namespace detail {
extern LIMBECK_API std::atomic<bool> is_recording;
// Index of the box it opened; the clock starts.
LIMBECK_API int64_t begin(const char* category, std::string_view name);
LIMBECK_API void end(int64_t box);
}  // namespace detail

// Scopes of one thread nest. `category` says what kind of thing is timed and must live as long as
// the process; `name` says which one, and is copied. Names should not vary with the step: the table
// has a row for each. [any]
class Scope {
 public:
  Scope(const char* category, std::string_view name) {
    if (detail::is_recording.load(std::memory_order_relaxed)) [[unlikely]] {
      box_ = detail::begin(category, name);
    }
  }
  ~Scope() {
    if (box_ >= 0) [[unlikely]] {
      detail::end(box_);
    }
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  int64_t box_ = -1;
};

// The parts of a step that are measured in every run.
enum class Part { kData, kForward, kBackward, kOptimizer };
inline constexpr size_t kParts = 4;
using Seconds = std::array<double, kParts>;  // by Part

// A Scope whose category and name are those of `part`, or `name`. Costs two readings of the clock.
// One of the same part inside another is part of it and is not counted twice. [control]
class LIMBECK_API Timed {
 public:
  explicit Timed(Part part, std::string_view name = "");
  ~Timed();
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  Scope scope_;
  Part part_;
  int64_t begin_;
};

// Of all Timed scopes that have ended since the last call. [control]
LIMBECK_API Seconds take_seconds();

// ---- recording

// What the trace calls the calling thread. Copied. [any]
LIMBECK_API void name_thread(std::string_view name);
// The number of the calling thread in boxes. [any]
LIMBECK_API int32_t this_thread();

// A stretch of time, in nanoseconds since recording began.
struct Box {
  const char* category;
  std::string name;
  int32_t thread;  // from 0, in order of first use
  int64_t begin;
  int64_t end;  // -1: not over yet
};

// Forgets what was recorded and begins anew. [control]
LIMBECK_API void start();
// Scopes that are open may still end. Without start(), or a second time: does nothing. [control]
LIMBECK_API void stop();
// What was recorded, in order of beginning; a box that is not over ends now. [any]
LIMBECK_API std::vector<Box> boxes();

// The boxes as a trace in Chrome's JSON format, in microseconds.
LIMBECK_API std::string to_trace(const std::vector<Box>& boxes);

// Boxes of one category and name together.
struct Row {
  std::string category;
  std::string name;
  int64_t calls = 0;
  double total = 0;  // seconds, with what happened inside
  double self = 0;   // seconds, without other boxes inside
};
// Of one thread, greatest `self` first.
LIMBECK_API std::vector<Row> summarise(const std::vector<Box>& boxes, int32_t thread);
// "self    total   calls  what" for the rows that together make 99 % of the time, and the rest.
LIMBECK_API std::string to_table(const std::vector<Row>& rows);

}  // namespace limbeck::profile
