// SPDX-License-Identifier: Apache-2.0
// Small hashes that decide orders and random numbers: they never change.
#pragma once

#include <cstdint>
#include <string_view>

namespace limbeck {

// 2^64 / golden ratio, the step of SplitMix64 (Steele, Lea and Flood 2014).
inline constexpr uint64_t kGolden64 = 0x9E3779B97F4A7C15U;

// The finaliser of SplitMix64: a bijection that spreads every bit.
constexpr uint64_t finalise64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

// SplitMix64's output for state `x`. splitmix64(0) = 0xE220A8397B1DCDAF.
constexpr uint64_t splitmix64(uint64_t x) { return finalise64(x + kGolden64); }

// FNV-1a, 64 bits.
constexpr uint64_t fnv1a64(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3U;
  }
  return hash;
}

}  // namespace limbeck
