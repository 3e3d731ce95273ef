// SPDX-License-Identifier: Apache-2.0
#include "core/base/files.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace limbeck {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const char* operation, const fs::path& path, const std::error_code& why) {
  throw Error(Fault::kData, cat("cannot ", operation, " ", path.string(), ": ", why.message()));
}

[[noreturn]] void fail_errno(const char* operation, const fs::path& path) {
  fail(operation, path, std::error_code(errno, std::generic_category()));
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) {
      ::close(number_);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int number() const { return number_; }
  bool is_open() const { return number_ >= 0; }
  // Some file systems report a failed write only here.
  bool close() { return ::close(std::exchange(number_, -1)) == 0; }

 private:
  int number_;
};

// A new file beside `path` that disappears again unless it is kept.
class TemporaryFile {
 public:
  explicit TemporaryFile(const fs::path& path) {
    static std::atomic<uint64_t> count{0};
    path_ = path.parent_path() /
            cat(".", path.filename().string(), ".", ::getpid(), ".", count++, ".tmp");
  }
  ~TemporaryFile() {
    if (is_owned_) {
      ::unlink(path_.c_str());
    }
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const fs::path& path() const { return path_; }

  void write(std::string_view content) {
    Descriptor file(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!file.is_open()) {
      fail_errno("create", path_);
    }
    is_owned_ = true;
    while (!content.empty()) {
      const ssize_t n = ::write(file.number(), content.data(), content.size());
      if (n < 0 && errno != EINTR) {
        fail_errno("write", path_);
      }
      content.remove_prefix(n < 0 ? 0 : static_cast<size_t>(n));
    }
    if (::fsync(file.number()) != 0) {
      fail_errno("flush", path_);
    }
    if (!file.close()) {
      fail_errno("close", path_);
    }
  }

  void rename_over(const fs::path& path) {
    if (::rename(path_.c_str(), path.c_str()) != 0) {
      fail_errno("replace", path);
    }
    is_owned_ = false;
  }

 private:
  fs::path path_;
  bool is_owned_ = false;
};

}  // namespace

std::string read_file(const fs::path& path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) {
    fail_errno("open", path);
  }
  std::string content;
  struct stat status = {};
  if (::fstat(file.number(), &status) == 0 && status.st_size > 0) {
    content.reserve(static_cast<size_t>(status.st_size));
  }
  // Until the end rather than st_size bytes: pipes and /proc have no size.
  std::array<char, 1 << 16> block{};
  for (;;) {
    const ssize_t n = ::read(file.number(), block.data(), block.size());
    if (n == 0) {
      return content;
    }
    if (n < 0 && errno != EINTR) {
      fail_errno("read", path);
    }
    content.append(block.data(), n < 0 ? 0 : static_cast<size_t>(n));
  }
}

void write_file(const fs::path& path, std::string_view content) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) {
    fail("create the folder", folder, failed);
  }
  TemporaryFile temporary(path);
  temporary.write(content);
  temporary.rename_over(path);
  flush_folder(folder);
}

void flush_folder(const fs::path& folder) {
  Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.is_open()) {
    ::fsync(opened.number());
  }
}

}  // namespace limbeck
