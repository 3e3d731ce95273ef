// SPDX-License-Identifier: Apache-2.0
#include "core/base/profile.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <mutex>
#include <utility>

namespace limbeck::profile {
namespace {

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct Recording {
  std::mutex mutex;  // of everything here
  int64_t began = 0;
  std::vector<Box> boxes;
  int64_t first = 0;  // number of the box that is boxes[0]: those of an earlier recording end late
  std::vector<std::string> threads;

  int32_t this_thread() {
    thread_local int32_t number = -1;
    if (number < 0) {
      number = static_cast<int32_t>(threads.size());
      threads.push_back("thread " + std::to_string(number));
    }
    return number;
  }
};

// Never destroyed: threads that are left behind may still use it.
Recording& recording() {
  static Recording& all = *new Recording;
  return all;
}

constexpr const char* kPartNames[kParts] = {"data", "forward", "backward", "optimizer"};

const char* name_of(Part part) { return kPartNames[static_cast<size_t>(part)]; }

// Of the control thread.
Seconds sums{};
std::array<int, kParts> depths{};

std::string json_text(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
    }
    result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return result += '"';
}

std::string microseconds(int64_t nanoseconds) {
  char text[40];
  std::snprintf(text, sizeof(text), "%lld.%03lld", static_cast<long long>(nanoseconds / 1000),
                static_cast<long long>(nanoseconds % 1000));
  return text;
}

}  // namespace

namespace detail {

std::atomic<bool> is_recording{false};

int64_t begin(const char* category, std::string_view name) {
  auto& all = recording();
  const std::lock_guard lock(all.mutex);
  all.boxes.push_back({category, std::string(name), all.this_thread(), now() - all.began, -1});
  return all.first + static_cast<int64_t>(all.boxes.size()) - 1;
}

void end(int64_t box) {
  auto& all = recording();
  const std::lock_guard lock(all.mutex);
  if (box >= all.first) {
    all.boxes[static_cast<size_t>(box - all.first)].end = now() - all.began;
  }
}

}  // namespace detail

Timed::Timed(Part part, std::string_view name)
    : scope_(name_of(part), name.empty() ? name_of(part) : name), part_(part), begin_(now()) {
  ++depths[static_cast<size_t>(part_)];
}

Timed::~Timed() {
  const auto index = static_cast<size_t>(part_);
  if (--depths[index] == 0) {
    sums[index] += 1e-9 * static_cast<double>(now() - begin_);
  }
}

Seconds take_seconds() { return std::exchange(sums, {}); }

void name_thread(std::string_view name) {
  auto& all = recording();
  const std::lock_guard lock(all.mutex);
  all.threads[static_cast<size_t>(all.this_thread())] = name;
}

int32_t this_thread() {
  auto& all = recording();
  const std::lock_guard lock(all.mutex);
  return all.this_thread();
}

void start() {
  auto& all = recording();
  const std::lock_guard lock(all.mutex);
  all.first += static_cast<int64_t>(all.boxes.size());
  all.boxes.clear();
  all.began = now();
  detail::is_recording = true;
}

void stop() { detail::is_recording = false; }

std::vector<Box> boxes() {
  auto& all = recording();
  const std::lock_guard lock(all.mutex);
  auto result = all.boxes;
  for (auto& box : result) {
    if (box.end < 0) {
      box.end = now() - all.began;
    }
  }
  return result;
}

std::string to_trace(const std::vector<Box>& boxes) {
  std::string json = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  {
    auto& all = recording();
    const std::lock_guard lock(all.mutex);
    for (size_t i = 0; i < all.threads.size(); ++i) {
      json += "{\"ph\":\"M\",\"pid\":0,\"tid\":" + std::to_string(i) +
              ",\"name\":\"thread_name\",\"args\":{\"name\":" + json_text(all.threads[i]) + "}},\n";
    }
  }
  for (const auto& box : boxes) {
    json += "{\"ph\":\"X\",\"pid\":0,\"tid\":" + std::to_string(box.thread) +
            ",\"ts\":" + microseconds(box.begin) + ",\"dur\":" + microseconds(box.end - box.begin) +
            ",\"cat\":" + json_text(box.category) + ",\"name\":" + json_text(box.name) + "},\n";
  }
  // Without a comma after the last one.
  const auto last = json.find_last_of('}');
  return json.substr(0, last == std::string::npos ? json.size() : last + 1) + "\n]}\n";
}

std::vector<Row> summarise(const std::vector<Box>& boxes, int32_t thread) {
  std::map<std::pair<std::string, std::string>, Row> rows;
  std::vector<std::pair<const Box*, Row*>> open;  // innermost last
  for (const auto& box : boxes) {
    if (box.thread != thread) {
      continue;
    }
    while (!open.empty() && open.back().first->end <= box.begin) {
      open.pop_back();
    }
    const double seconds = 1e-9 * static_cast<double>(box.end - box.begin);
    auto& row = rows[{box.category, box.name}];
    row.category = box.category;
    row.name = box.name;
    ++row.calls;
    row.self += seconds;
    const bool is_inside_itself = std::any_of(
        open.begin(), open.end(), [&row](const auto& outer) { return outer.second == &row; });
    row.total += is_inside_itself ? 0 : seconds;
    if (!open.empty()) {
      open.back().second->self -= seconds;
    }
    open.emplace_back(&box, &row);
  }
  std::vector<Row> result;
  for (auto& [key, row] : rows) {
    result.push_back(std::move(row));
  }
  std::sort(result.begin(), result.end(),
            [](const Row& a, const Row& b) { return a.self > b.self; });
  return result;
}

std::string to_table(const std::vector<Row>& rows) {
  constexpr double kShown = 0.99;
  double all = 0;
  for (const auto& row : rows) {
    all += row.self;
  }
  std::string table = "   self        self s     total s     calls  what\n";
  const auto add = [&](double self, double total, int64_t calls, const std::string& what) {
    char line[128];
    std::snprintf(line, sizeof(line), "%6.1f %%  %12.6f", all > 0 ? 100 * self / all : 0.0, self);
    table += line;
    if (calls > 0) {
      std::snprintf(line, sizeof(line), "%12.6f %9lld", total, static_cast<long long>(calls));
    } else {
      std::snprintf(line, sizeof(line), "%12s %9s", "", "");
    }
    table += std::string(line) + "  " + what + "\n";
  };
  double shown = 0;
  for (const auto& row : rows) {
    if (shown >= kShown * all) {
      break;
    }
    add(row.self, row.total, row.calls,
        row.category == row.name ? row.name : row.category + " " + row.name);
    shown += row.self;
  }
  if (all - shown > 1e-9) {
    add(all - shown, 0, 0, "everything else");
  }
  return table;
}

}  // namespace limbeck::profile
