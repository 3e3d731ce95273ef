// SPDX-License-Identifier: Apache-2.0
#include "basics/append_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace basics {
namespace {

int flags_of(AppendFile::Start start) {
  switch (start) {
    case AppendFile::Start::kEmpty:
      return O_TRUNC;
    case AppendFile::Start::kNew:
      return O_EXCL;
    default:
      return 0;
  }
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
        return reason;  // a torn record stays; readers drop it
      }
      return reason;
    }
    text.remove_prefix(static_cast<size_t>(count));
  }
  return 0;
}

}  // namespace

void fail(const std::filesystem::path& path, const char* doing, int reason) {
  throw std::runtime_error(std::string(doing) + " '" + path.string() +
                           "': " + std::strerror(reason));
}

AppendFile::AppendFile(std::filesystem::path path, Start start) : path_(std::move(path)) {
  const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | flags_of(start);
  descriptor_ = open(path_.c_str(), flags, 0666);
  if (descriptor_ < 0) {
    fail(path_, "cannot create", errno);
  }
}

AppendFile::~AppendFile() {
  fdatasync(descriptor_);
  close(descriptor_);
}

void AppendFile::append(std::string_view record) {
  const int reason = write_whole(descriptor_, record);
  if (reason != 0) {
    fail(path_, "cannot append to", reason);
  }
}

}  // namespace basics
