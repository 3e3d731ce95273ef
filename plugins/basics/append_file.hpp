// SPDX-License-Identifier: Apache-2.0
// A file that only grows, by whole records.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>

namespace basics {

// "<doing> '<path>': <reason of errno>"
[[noreturn]] void fail(const std::filesystem::path& path, const char* doing, int reason);

// A record is handed to the system in one piece, so that a reader sees it at once, or, when the
// disk is full, not at all: after a failure the file ends with the last complete record. Functions
// throw std::runtime_error with path and reason. One thread.
class AppendFile {
 public:
  enum class Start { kEmpty, kGoOn, kNew };  // an existing file: emptied, continued, an error

  AppendFile(std::filesystem::path path, Start start);
  // Asks the system to put everything on the disk, and closes.
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void append(std::string_view record);

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace basics
