// SPDX-License-Identifier: Apache-2.0
#include "core/base/log.hpp"

#include <cstdio>
#include <memory>
#include <mutex>
#include <string>

#include <sys/ioctl.h>
#include <unistd.h>

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_color_sinks.h>

namespace limbeck::log {
namespace {

constexpr const char* kPattern = "%Y-%m-%d %H:%M:%S.%e %^%-7l%$ %v";
constexpr const char* kEraseLine = "\r\x1b[2K";

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kTrace:
      return spdlog::level::trace;
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarn:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

// A line longer than the terminal is wide would wrap and could not be erased any more. Counts
// code points: a character that is two columns wide may still wrap.
std::string_view fit_to_terminal(std::string_view text) {
  struct winsize size = {};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
    return text;
  }
  size_t columns = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool begins_character = (static_cast<unsigned char>(text[i]) & 0xc0U) != 0x80U;
    if (begins_character && ++columns >= size.ws_col) {
      return text.substr(0, i);
    }
  }
  return text;
}

class Output {
 public:
  Output() : logger_("limbeck", std::make_shared<spdlog::sinks::stderr_color_sink_st>()) {
    logger_.set_pattern(kPattern);
    logger_.set_level(spdlog::level::info);
    logger_.flush_on(spdlog::level::trace);
  }

  // Reads an atomic of spdlog: no lock.
  bool enabled(Level level) const { return logger_.should_log(to_spdlog(level)); }
  void set_level(Level level) { logger_.set_level(to_spdlog(level)); }

  void write(Level level, std::string_view component, std::string_view text) {
    const std::lock_guard<std::mutex> lock(mutex_);
    erase_status();
    logger_.log(to_spdlog(level), "{}: {}", component, text);
    draw_status();
  }

  void set_status(std::string_view text) {
    if (!is_terminal()) {
      return;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    erase_status();
    status_ = text.substr(0, text.find('\n'));
    draw_status();
  }

 private:
  void erase_status() {
    if (!status_.empty()) {
      std::fputs(kEraseLine, stderr);
    }
  }
  void draw_status() {
    if (!status_.empty()) {
      const std::string_view shown = fit_to_terminal(status_);
      std::fwrite(shown.data(), 1, shown.size(), stderr);
      std::fflush(stderr);
    }
  }

  std::mutex mutex_;
  std::string status_;
  spdlog::logger logger_;
};

// Never destroyed: destructors of other statics, also of plugins, may log.
Output& output() {
  static Output& instance = *new Output();
  return instance;
}

}  // namespace

void setup(Level level) { output().set_level(level); }

bool enabled(Level level) { return output().enabled(level); }

void write(Level level, std::string_view component, std::string_view text) {
  if (output().enabled(level)) {
    output().write(level, component, text);
  }
}

void status_line(std::string_view text) { output().set_status(text); }

// Asked anew each time: standard error may have been redirected meanwhile.
bool is_terminal() { return ::isatty(STDERR_FILENO) == 1; }

}  // namespace limbeck::log
