// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4), for pinned plugins.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/export.hpp"

namespace limbeck {

class LIMBECK_API Sha256 {
 public:
  void add(std::string_view bytes);
  // 64 lower-case hexadecimal digits. The object is used up.
  std::string finish();

 private:
  void absorb(const unsigned char* block);

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<unsigned char, 64> pending_{};
  size_t n_pending_ = 0;
  uint64_t n_bytes_ = 0;
};

// Of everything that can be read from the start of an open regular file; its position is not
// moved. Throws Error(kData) when it cannot be read.
LIMBECK_API std::string sha256_of_descriptor(int descriptor);

}  // namespace limbeck
