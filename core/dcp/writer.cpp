// SPDX-License-Identifier: Apache-2.0
#include "core/dcp/writer.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/dcp/archive.hpp"
#include "core/dcp/crc32.hpp"
#include "core/dcp/pickle.hpp"

namespace limbeck {
namespace {

namespace fs = std::filesystem;

// Hashed and written while it is in the cache.
constexpr size_t kBlock = size_t{1} << 20;
// After so many bytes the kernel is asked to begin writing them to the disk, so that closing the
// file has little left to wait for.
constexpr uint64_t kFlushInterval = uint64_t{32} << 20;

[[noreturn]] void fail(const char* operation, const fs::path& path) {
  throw Error(Fault::kData, cat("cannot ", operation, " ", path.string(), ": ",
                                std::error_code(errno, std::generic_category()).message()));
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
  // Some file systems report a failed write only here.
  bool close() { return ::close(std::exchange(number_, -1)) == 0; }

 private:
  int number_;
};

class Hash {
 public:
  Hash() { XXH3_64bits_reset(&state_); }
  void add(const void* data, size_t size) { XXH3_64bits_update(&state_, data, size); }
  uint64_t digest() const { return XXH3_64bits_digest(&state_); }

 private:
  XXH3_state_t state_{};
};

}  // namespace

FileDigest digest_of_file(const fs::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.number() < 0) {
    fail("open", path);
  }
  FileDigest digest;
  Hash hash;
  std::vector<char> block(kBlock);
  for (;;) {
    const ssize_t n = ::read(file.number(), block.data(), block.size());
    if (n == 0) {
      digest.xxh3 = hash.digest();
      return digest;
    }
    if (n < 0 && errno != EINTR) {
      fail("read", path);
    }
    const auto count = static_cast<size_t>(std::max<ssize_t>(n, 0));
    hash.add(block.data(), count);
    digest.bytes += count;
  }
}

struct DcpFileWriter::State {
  State(const fs::path& folder, std::string file_name)
      : path(folder / file_name),
        name(std::move(file_name)),
        file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
    if (file.number() < 0) {
      fail("create", path);
    }
  }

  void write(const char* data, size_t size) {
    hash.add(data, size);
    bytes += size;
    while (size > 0) {
      const ssize_t n = ::write(file.number(), data, size);
      if (n < 0 && errno != EINTR) {
        fail("write", path);
      }
      const auto done = static_cast<size_t>(std::max<ssize_t>(n, 0));
      data += done;
      size -= done;
    }
    if (bytes - flushed >= kFlushInterval) {
      // No promise, and no error: fsync() has them.
      ::sync_file_range(file.number(), static_cast<off_t>(flushed),
                        static_cast<off_t>(bytes - flushed), SYNC_FILE_RANGE_WRITE);
      flushed = bytes;
    }
  }
  void write(const std::string& text) { write(text.data(), text.size()); }

  // Where the next item begins. `head` is the first part of it.
  uint64_t begin_item(const std::string& head) {
    const uint64_t padding = (kDcpAlignment - bytes % kDcpAlignment) % kDcpAlignment;
    write(std::string(padding, '\0') + head);
    return bytes - head.size();
  }

  fs::path path;
  std::string name;
  Descriptor file;
  Hash hash;
  uint64_t bytes = 0;
  uint64_t flushed = 0;  // up to here
};

DcpFileWriter::DcpFileWriter(const fs::path& folder, std::string name)
    : state_(std::make_unique<State>(folder, std::move(name))) {}

DcpFileWriter::~DcpFileWriter() = default;

DcpItem DcpFileWriter::add_tensor(const DcpType& type,
                                  const std::vector<int64_t>& sizes,
                                  const std::byte* data) {
  uint64_t left = type.bytes;
  for (const int64_t size : sizes) {
    left *= static_cast<uint64_t>(size);
  }
  const DcpArchive archive(pickle_of_tensor(type, sizes), left);
  const uint64_t begin = state_->begin_item(archive.head());
  const auto* at = reinterpret_cast<const char*>(data);
  uint32_t crc = 0;
  while (left > 0) {
    const size_t count = std::min<uint64_t>(left, kBlock);
    crc = crc32_of(crc, at, count);
    state_->write(at, count);
    at += count;
    left -= count;
  }
  state_->write(archive.tail(crc));
  return {state_->name, begin, state_->bytes - begin};
}

DcpItem DcpFileWriter::add_value(const DcpValue& value) {
  PickleWriter pickle;
  pickle.value(value);
  const DcpArchive archive(pickle.finish());
  const uint64_t begin = state_->begin_item(archive.head() + archive.tail(0));
  return {state_->name, begin, state_->bytes - begin};
}

uint64_t DcpFileWriter::bytes() const { return state_->bytes; }

FileDigest DcpFileWriter::close() {
  if (::fsync(state_->file.number()) != 0) {
    fail("flush", state_->path);
  }
  if (!state_->file.close()) {
    fail("close", state_->path);
  }
  return {state_->bytes, state_->hash.digest()};
}

}  // namespace limbeck
