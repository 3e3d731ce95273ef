// SPDX-License-Identifier: Apache-2.0
#include "core/dcp/crc32.hpp"

#include <zlib.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace limbeck {
namespace {

uint32_t crc32_of_zlib(uint32_t crc, const void* data, size_t size) {
  return static_cast<uint32_t>(::crc32_z(crc, static_cast<const Bytef*>(data), size));
}

#if defined(__x86_64__)

// A message is a polynomial over GF(2), and its CRC the remainder by P. Carry-less products replace
// 16 bytes by an equal remainder further on: lower half * (x^(n+32) mod P) + upper half *
// (x^(n-32) mod P), where n is the distance in bits. So 64 bytes at a time shrink to 16, whose CRC
// zlib finishes. Bits of a byte are reflected in CRC-32, hence the shift by one of a product.

constexpr uint64_t kPolynomial = 0xedb88320;  // reflected, without its highest term

// x^n mod P, reflected and shifted by one.
constexpr uint64_t power(unsigned n) {
  uint32_t value = 0x80000000;  // x^0
  for (; n > 0; --n) {
    value = (value >> 1) ^ ((value & 1) != 0 ? static_cast<uint32_t>(kPolynomial) : 0);
  }
  return uint64_t{value} << 1;
}

constexpr size_t kLanes = 4;
constexpr size_t kLane = 16;  // bytes
constexpr size_t kStride = kLanes * kLane;

struct Factors {
  uint64_t low;
  uint64_t high;
};

constexpr Factors factors(unsigned bits) { return {power(bits + 32), power(bits - 32)}; }

constexpr Factors kByStride = factors(8 * kStride);
constexpr Factors kByLane = factors(8 * kLane);

#define LIMBECK_CLMUL __attribute__((target("pclmul,sse4.1")))

LIMBECK_CLMUL inline __m128i load_factors(const Factors& by) {
  return _mm_set_epi64x(static_cast<long long>(by.high), static_cast<long long>(by.low));
}

LIMBECK_CLMUL inline __m128i fold(__m128i value, __m128i by, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(value, by, 0x00);
  const __m128i high = _mm_clmulepi64_si128(value, by, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

LIMBECK_CLMUL inline __m128i load(const unsigned char* at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}

// `size` is at least kStride.
LIMBECK_CLMUL uint32_t crc32_of_products(uint32_t crc, const unsigned char* data, size_t size) {
  __m128i lanes[kLanes];
  for (size_t i = 0; i < kLanes; ++i) {
    lanes[i] = load(data + i * kLane);
  }
  lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128(static_cast<int>(~crc)));
  data += kStride;
  size -= kStride;
  const __m128i by_stride = load_factors(kByStride);
  for (; size >= kStride; data += kStride, size -= kStride) {
    for (size_t i = 0; i < kLanes; ++i) {
      lanes[i] = fold(lanes[i], by_stride, load(data + i * kLane));
    }
  }
  const __m128i by_lane = load_factors(kByLane);
  __m128i sum = lanes[0];
  for (size_t i = 1; i < kLanes; ++i) {
    sum = fold(sum, by_lane, lanes[i]);
  }
  for (; size >= kLane; data += kLane, size -= kLane) {
    sum = fold(sum, by_lane, load(data));
  }
  unsigned char last[kLane];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(last), sum);
  // The state that zlib begins with is the complement of its argument: here 0, since the state so
  // far is in `last`.
  const uint32_t folded = crc32_of_zlib(0xffffffff, last, kLane);
  return crc32_of_zlib(folded, data, size);
}

bool has_products() {
  static const bool has =
      __builtin_cpu_supports("pclmul") != 0 && __builtin_cpu_supports("sse4.1") != 0;
  return has;
}

#endif

}  // namespace

uint32_t crc32_of(uint32_t crc, const void* data, size_t size) {
#if defined(__x86_64__)
  if (size >= kStride && has_products()) {
    return crc32_of_products(crc, static_cast<const unsigned char*>(data), size);
  }
#endif
  return size == 0 ? crc : crc32_of_zlib(crc, data, size);
}

}  // namespace limbeck
