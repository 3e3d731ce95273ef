// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/host_table.hpp"

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/manifest/config.hpp"
#include "core/plugin/status.hpp"

namespace limbeck {
namespace {

using Clock = std::chrono::steady_clock;

// ---- services

class Services {
 public:
  Services() { provide("limbeck.config/1", &config_api()); }

  void provide(const char* id, const void* table) {
    const std::lock_guard lock(mutex_);
    tables_.emplace(id, table);
  }

  const void* find(std::string_view id) const {
    const std::lock_guard lock(mutex_);
    const auto found = tables_.find(id);
    return found == tables_.end() ? nullptr : found->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, const void*, std::less<>> tables_;
};

Services& services() {
  static Services& all = *new Services;  // never destroyed: plugins ask until the process ends
  return all;
}

const void* get_service(const lb_host*, const char* id) {
  return id == nullptr ? nullptr : services().find(id);
}

// ---- statuses

std::string_view file_name(const char* path) {
  const std::string_view text = path == nullptr ? "" : path;
  const auto slash = text.rfind('/');
  return slash == std::string_view::npos ? text : text.substr(slash + 1);
}

bool is_given(const char* text) { return text != nullptr && *text != '\0'; }

std::string place(const char* file, int32_t line) { return cat(file_name(file), ":", line); }

lb_status* fail(const lb_host*, lb_code code, const char* file, int32_t line, const char* message) {
  try {
    // A plugin that fails with LB_OK has a bug; success is NULL.
    lb_status* status =
        make_status(code == LB_OK ? LB_UNKNOWN : code, message == nullptr ? "no message" : message);
    return is_given(file) ? add_frame(status, "at " + place(file, line)) : status;
  } catch (...) {
    return status_of_current_exception();
  }
}

lb_status* context(
    const lb_host*, lb_status* status, const char* file, int32_t line, const char* message) {
  try {
    std::string frame = message == nullptr ? "" : message;
    if (is_given(file)) {
      frame += " (" + place(file, line) + ")";
    }
    return add_frame(status, std::move(frame));
  } catch (...) {
    return status;
  }
}

lb_code code(const lb_status* status) { return status == nullptr ? lb_code{LB_OK} : status->code; }

const char* message(const lb_status* status) {
  return status == nullptr ? "" : status->message.c_str();
}

// ---- logging

log::Level to_level(lb_level level) {
  switch (level) {
    case LB_TRACE:
      return log::Level::kTrace;
    case LB_DEBUG:
      return log::Level::kDebug;
    case LB_INFO:
      return log::Level::kInfo;
    case LB_WARN:
      return log::Level::kWarn;
    default:
      return log::Level::kError;
  }
}

int32_t log_enabled(const lb_host*, lb_level level) {
  return log::enabled(to_level(level)) ? 1 : 0;
}

void write_log(const lb_host*,
               lb_level level,
               const char* component,
               const char* file,
               int32_t line,
               const char* message) {
  if (message == nullptr || !log::enabled(to_level(level))) {
    return;
  }
  try {
    std::string text = message;
    // Where a debug line comes from is for the plugin's author; a person running it reads text.
    if (is_given(file) && (level == LB_TRACE || level == LB_DEBUG)) {
      text += " (" + place(file, line) + ")";
    }
    log::write(to_level(level), component == nullptr ? "plugin" : component, text);
  } catch (...) {
    // A line that cannot be logged is not worth a failed run.
  }
}

// A terminal is redrawn a few times a second; a log file gets a line now and then.
void progress(const lb_host*, const char* what, int64_t done, int64_t total) {
  static std::mutex mutex;
  static Clock::time_point last;
  try {
    const std::lock_guard lock(mutex);
    const bool is_last = total >= 0 && done >= total;
    const auto pause =
        log::is_terminal() ? std::chrono::milliseconds(200) : std::chrono::milliseconds(10000);
    const auto now = Clock::now();
    if (!is_last && last != Clock::time_point{} && now - last < pause) {
      return;
    }
    last = now;
    const std::string text = total < 0 ? cat(what, ": ", done) : cat(what, ": ", done, "/", total);
    if (log::is_terminal()) {
      log::status_line(is_last ? "" : text);
    } else {
      log::info("plugin", text);
    }
  } catch (...) {
    // As in write_log().
  }
}

// ---- stopping

std::atomic<int> stop{LB_GO_ON};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler stores to it");

lb_stop poll_stop(const lb_host*) { return stop.load(std::memory_order_relaxed); }

}  // namespace

const lb_host& host_table() {
  static const lb_host table = {
      sizeof(lb_host), LB_ABI_MAJOR, LB_ABI_MINOR, version(), host_torch_tag(), nullptr,
      get_service,     fail,         context,      code,      message,          drop_status,
      log_enabled,     write_log,    progress,     poll_stop,
  };
  return table;
}

void provide(const char* id, const void* table) { services().provide(id, table); }

void request_stop(int how) noexcept {
  int before = stop.load(std::memory_order_relaxed);
  while (before < how && !stop.compare_exchange_weak(before, how, std::memory_order_relaxed)) {
  }
}

lb_stop stop_requested() noexcept { return poll_stop(nullptr); }

void forget_stop() noexcept { stop.store(LB_GO_ON, std::memory_order_relaxed); }

const char* version() { return LIMBECK_VERSION; }

}  // namespace limbeck
