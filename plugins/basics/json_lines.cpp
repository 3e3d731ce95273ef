// SPDX-License-Identifier: Apache-2.0
#include "basics/json_lines.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <stdexcept>

namespace basics {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const char* doing, int reason) {
  throw std::runtime_error(std::string(doing) + " '" + path.string() +
                           "': " + std::strerror(reason));
}

std::string begin_line(int64_t step, double time) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, time, std::chars_format::fixed, 3).ptr;
  return "{\"step\":" + std::to_string(step) + ",\"time\":" + std::string(text, end);
}

// Writes all of `text`, or removes what was written of it. Returns 0 or errno.
int write_whole(int descriptor, std::string_view text) {
  const off_t start = lseek(descriptor, 0, SEEK_END);
  while (!text.empty()) {
    const ssize_t count = write(descriptor, text.data(), text.size());
    if (count < 0) {
      if (errno == EINTR) {
        continue;
      }
      const int reason = errno;
      if (start >= 0 && ftruncate(descriptor, start) != 0) {
        return reason;  // a torn line stays; readers drop it
      }
      return reason;
    }
    text.remove_prefix(static_cast<size_t>(count));
  }
  return 0;
}

// Removes all lines but those of steps before `first_step`. The old file stays until the new one is
// complete.
void keep_before(const std::filesystem::path& path, int64_t first_step) {
  std::ifstream before(path, std::ios::binary);
  std::string kept;
  bool is_changed = false;
  for (std::string line; std::getline(before, line);) {
    const int64_t step = step_of_line(line);
    if (step >= 0 && step < first_step && !before.eof()) {  // at the end: torn before its newline
      kept += line + "\n";
    } else {
      is_changed = true;
    }
  }
  before.close();
  if (!is_changed) {
    return;
  }
  std::filesystem::path temporary = path;
  temporary += ".tmp" + std::to_string(getpid());
  const int descriptor = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    fail(path, "cannot rewrite", errno);
  }
  int reason = write_whole(descriptor, kept);
  if (close(descriptor) != 0 && reason == 0) {
    reason = errno;
  }
  if (reason == 0 && rename(temporary.c_str(), path.c_str()) != 0) {
    reason = errno;
  }
  if (reason != 0) {
    unlink(temporary.c_str());
    fail(path, "cannot rewrite", reason);
  }
}

}  // namespace

std::string json_string(std::string_view text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string result = "\"";
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if (character == '"' || character == '\\') {
      result += '\\';
      result += character;
    } else if (character == '\n') {
      result += "\\n";
    } else if (byte < 0x20) {
      result += "\\u00";
      result += kDigits[byte >> 4];
      result += kDigits[byte & 15];
    } else {
      result += character;
    }
  }
  return result + '"';
}

std::string json_number(double value) {
  if (!std::isfinite(value)) {
    return "null";
  }
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

int64_t step_of_line(std::string_view line) {
  constexpr std::string_view kStart = "{\"step\":";
  if (line.substr(0, kStart.size()) != kStart || line.back() != '}') {
    return -1;
  }
  int64_t step = -1;
  const auto [end, error] =
      std::from_chars(line.data() + kStart.size(), line.data() + line.size(), step);
  return error == std::errc() && *end == ',' ? step : -1;
}

JsonLines::JsonLines(std::filesystem::path path, int64_t first_step) : path_(std::move(path)) {
  if (first_step > 1) {
    keep_before(path_, first_step);
  }
  const int begin = first_step > 1 ? 0 : O_TRUNC;
  descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | begin, 0666);
  if (descriptor_ < 0) {
    fail(path_, "cannot create", errno);
  }
}

JsonLines::~JsonLines() { close(descriptor_); }

void JsonLines::scalars(int64_t step,
                        double time,
                        const std::vector<std::pair<std::string, double>>& values) {
  std::string line = begin_line(step, time);
  for (const auto& [name, value] : values) {
    const bool is_taken = name == "step" || name == "time";
    line += "," + json_string(is_taken ? "metric." + name : name) + ":" + json_number(value);
  }
  append(line + "}\n");
}

void JsonLines::file(int64_t step,
                     double time,
                     const std::string& name,
                     const std::string& media_type,
                     const std::string& path,
                     const std::string& caption) {
  append(begin_line(step, time) + ",\"file\":" + json_string(path) +
         ",\"name\":" + json_string(name) + ",\"media_type\":" + json_string(media_type) +
         ",\"caption\":" + json_string(caption) + "}\n");
}

void JsonLines::append(const std::string& line) {
  const int reason = write_whole(descriptor_, line);
  if (reason != 0) {
    fail(path_, "cannot append to", reason);
  }
}

}  // namespace basics
