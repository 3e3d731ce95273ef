// SPDX-License-Identifier: Apache-2.0
// What the fuzzers share: the function that libFuzzer calls, and an input as an open file.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace limbeck::fuzz {

// A file in memory whose content is the input, at the same path for every input.
class InputFile {
 public:
  void set(const uint8_t* data, size_t size) const {
    if (ftruncate(descriptor_, 0) != 0 ||
        pwrite(descriptor_, data, size, 0) != static_cast<ssize_t>(size)) {
      std::abort();
    }
  }
  int descriptor() const { return descriptor_; }
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_ = memfd_create("input", MFD_CLOEXEC);
};

}  // namespace limbeck::fuzz
