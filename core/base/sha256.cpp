// SPDX-License-Identifier: Apache-2.0
#include "core/base/sha256.hpp"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace limbeck {
namespace {

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t big_endian(const unsigned char* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

}  // namespace

void Sha256::absorb(const unsigned char* block) {
  std::array<uint32_t, 64> w{};
  for (size_t t = 0; t < 16; ++t) {
    w[t] = big_endian(block + 4 * t);
  }
  for (size_t t = 16; t < 64; ++t) {
    const uint32_t low = w[t - 15];
    const uint32_t high = w[t - 2];
    const uint32_t s0 = std::rotr(low, 7) ^ std::rotr(low, 18) ^ (low >> 3);
    const uint32_t s1 = std::rotr(high, 17) ^ std::rotr(high, 19) ^ (high >> 10);
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t t = 0; t < 64; ++t) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t one = h + s1 + ((e & f) ^ (~e & g)) + kRound[t] + w[t];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t two = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + one;
    d = c;
    c = b;
    b = a;
    a = one + two;
  }
  const std::array<uint32_t, 8> after = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < after.size(); ++i) {
    state_[i] += after[i];
  }
}

void Sha256::add(std::string_view bytes) {
  n_bytes_ += bytes.size();
  while (!bytes.empty()) {
    const size_t n = std::min(bytes.size(), pending_.size() - n_pending_);
    std::memcpy(pending_.data() + n_pending_, bytes.data(), n);
    n_pending_ += n;
    bytes.remove_prefix(n);
    if (n_pending_ == pending_.size()) {
      absorb(pending_.data());
      n_pending_ = 0;
    }
  }
}

std::string Sha256::finish() {
  const uint64_t n_bits = n_bytes_ * 8;
  add(std::string_view("\x80", 1));
  while (n_pending_ != 56) {
    add(std::string_view("\0", 1));
  }
  std::string length;
  for (int shift = 56; shift >= 0; shift -= 8) {
    length += static_cast<char>(n_bits >> shift & 0xff);
  }
  add(length);

  std::string text;
  for (const uint32_t word : state_) {
    for (int shift = 28; shift >= 0; shift -= 4) {
      text += "0123456789abcdef"[word >> shift & 0xf];
    }
  }
  return text;
}

std::string sha256_of_descriptor(int descriptor) {
  Sha256 hash;
  std::vector<char> buffer(1 << 16);
  off_t at = 0;
  while (true) {
    const ssize_t got = pread(descriptor, buffer.data(), buffer.size(), at);
    if (got < 0) {
      throw Error(Fault::kData, cat("cannot read a file to hash it: ", std::strerror(errno)));
    }
    if (got == 0) {
      return hash.finish();
    }
    hash.add({buffer.data(), static_cast<size_t>(got)});
    at += got;
  }
}

}  // namespace limbeck
