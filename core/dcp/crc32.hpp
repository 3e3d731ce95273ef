// SPDX-License-Identifier: Apache-2.0
// CRC-32 as zip and zlib compute it, at the speed of memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/export.hpp"

namespace limbeck {

// Continues `crc` with `size` more bytes; begin with 0. Equals zlib's crc32(). [any]
LIMBECK_API uint32_t crc32_of(uint32_t crc, const void* data, size_t size);

}  // namespace limbeck
