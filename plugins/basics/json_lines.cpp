// SPDX-License-Identifier: Apache-2.0
#include "basics/json_lines.hpp"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>

namespace basics {
namespace {

std::string begin_line(int64_t step, double time) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, time, std::chars_format::fixed, 3).ptr;
  return "{\"step\":" + std::to_string(step) + ",\"time\":" + std::string(text, end);
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
  try {
    AppendFile(temporary, AppendFile::Start::kEmpty).append(kept);
  } catch (...) {
    unlink(temporary.c_str());
    throw;
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) {
    const int reason = errno;
    unlink(temporary.c_str());
    fail(path, "cannot rewrite", reason);
  }
}

const std::filesystem::path& after_its_past(const std::filesystem::path& path, int64_t first_step) {
  if (first_step > 1) {
    keep_before(path, first_step);
  }
  return path;
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
  if (std::isnan(value)) {
    return "\"NaN\"";
  }
  if (std::isinf(value)) {
    return value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
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

JsonLines::JsonLines(const std::filesystem::path& path, int64_t first_step)
    : file_(after_its_past(path, first_step),
            first_step > 1 ? AppendFile::Start::kGoOn : AppendFile::Start::kEmpty) {}

void JsonLines::scalars(int64_t step,
                        double time,
                        const std::vector<std::pair<std::string, double>>& values) {
  std::string line = begin_line(step, time);
  for (const auto& [name, value] : values) {
    const bool is_taken = name == "step" || name == "time";
    line += "," + json_string(is_taken ? "metric." + name : name) + ":" + json_number(value);
  }
  file_.append(line + "}\n");
}

void JsonLines::file(int64_t step,
                     double time,
                     const std::string& name,
                     const std::string& media_type,
                     const std::string& path,
                     const std::string& caption) {
  file_.append(begin_line(step, time) + ",\"file\":" + json_string(path) +
               ",\"name\":" + json_string(name) + ",\"media_type\":" + json_string(media_type) +
               ",\"caption\":" + json_string(caption) + "}\n");
}

}  // namespace basics
