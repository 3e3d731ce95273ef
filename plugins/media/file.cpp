// SPDX-License-Identifier: Apache-2.0
#include "media/file.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>

namespace media {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& reason) {
  throw std::runtime_error("cannot write '" + path.string() + "': " + reason);
}

}  // namespace

void replace_file(const std::filesystem::path& path, std::span<const unsigned char> content) {
  std::error_code error;
  if (path.has_parent_path()) {
    std::filesystem::create_directories(path.parent_path(), error);
    if (error) {
      fail(path, "creating its folder: " + error.message());
    }
  }
  std::filesystem::path temporary = path;
  temporary += ".tmp" + std::to_string(getpid());
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  if (file == nullptr) {
    fail(path, std::strerror(errno));
  }
  bool is_written = std::fwrite(content.data(), 1, content.size(), file) == content.size();
  int reason = errno;
  // A full disk may show only when the last buffer is written.
  if (std::fclose(file) != 0 && is_written) {
    is_written = false;
    reason = errno;
  }
  if (is_written && std::rename(temporary.c_str(), path.c_str()) != 0) {
    is_written = false;
    reason = errno;
  }
  if (!is_written) {
    std::filesystem::remove(temporary, error);
    fail(path, std::strerror(reason));
  }
}

}  // namespace media
