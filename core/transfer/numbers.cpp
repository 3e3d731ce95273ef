// SPDX-License-Identifier: Apache-2.0
#include "core/transfer/numbers.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <string_view>

namespace limbeck {
namespace {

constexpr int kDoubleFraction = 52;
constexpr int kDoubleBias = 1023;

template <class T>
T load_number(const std::byte* bytes, uint64_t i) {
  T value;
  std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void store_number(std::byte* bytes, uint64_t i, T value) {
  std::memcpy(bytes + i * sizeof(T), &value, sizeof(T));
}

// A format of IEEE 754 with these bits, from its bits.
template <int exponent_bits, int fraction_bits>
double widened(uint32_t bits) {
  constexpr int kBias = (1 << (exponent_bits - 1)) - 1;
  constexpr uint32_t kTop = (1U << exponent_bits) - 1;
  const uint64_t sign = bits >> (exponent_bits + fraction_bits);
  const uint32_t exponent = (bits >> fraction_bits) & kTop;
  const uint64_t fraction = bits & ((1U << fraction_bits) - 1);
  if (exponent == 0) {
    const double size = std::ldexp(static_cast<double>(fraction), 1 - kBias - fraction_bits);
    return sign != 0 ? -size : size;
  }
  const uint64_t wide = exponent == kTop ? 0x7FF : exponent + (kDoubleBias - kBias);
  return std::bit_cast<double>((sign << 63) | (wide << kDoubleFraction) |
                               (fraction << (kDoubleFraction - fraction_bits)));
}

// The bits of the nearest number of such a format, of ties the even one.
template <int exponent_bits, int fraction_bits>
uint32_t rounded(double value) {
  constexpr int kBias = (1 << (exponent_bits - 1)) - 1;
  constexpr uint64_t kInfinity = uint64_t{(1U << exponent_bits) - 1} << fraction_bits;
  const auto bits = std::bit_cast<uint64_t>(value);
  const uint64_t sign = (bits >> 63) << (exponent_bits + fraction_bits);
  const auto exponent = static_cast<int>((bits >> kDoubleFraction) & 0x7FF);
  const uint64_t fraction = bits & ((uint64_t{1} << kDoubleFraction) - 1);
  if (exponent == 0x7FF) {
    const uint64_t payload = fraction >> (kDoubleFraction - fraction_bits);
    constexpr uint64_t kQuiet = uint64_t{1} << (fraction_bits - 1);
    return static_cast<uint32_t>(sign | kInfinity | (fraction == 0 ? 0 : kQuiet | payload));
  }
  const int wanted = exponent - kDoubleBias + kBias;
  // Below the smallest normal number more bits are dropped. A double's own numbers of that kind are
  // far below the half of the smallest number here.
  const int dropped = kDoubleFraction - fraction_bits + (wanted > 0 ? 0 : 1 - wanted);
  if (exponent == 0 || dropped > kDoubleFraction + 1) {
    return static_cast<uint32_t>(sign);
  }
  const uint64_t significand = fraction | (uint64_t{1} << kDoubleFraction);
  const uint64_t rest = significand & ((uint64_t{1} << dropped) - 1);
  const uint64_t half = uint64_t{1} << (dropped - 1);
  uint64_t kept = significand >> dropped;
  kept += rest > half || (rest == half && (kept & 1) != 0) ? 1 : 0;
  // The leading one of a normal number adds itself to the exponent, as does a carry.
  const uint64_t result =
      wanted > 0 ? (static_cast<uint64_t>(wanted - 1) << fraction_bits) + kept : kept;
  return static_cast<uint32_t>(sign | (result >= kInfinity ? kInfinity : result));
}

enum class Format { kF64, kF32, kBf16, kF16, kOther };

Format format_of(const WeightType& type) {
  const std::string_view name = type.name;
  return name == "F32"    ? Format::kF32
         : name == "BF16" ? Format::kBf16
         : name == "F16"  ? Format::kF16
         : name == "F64"  ? Format::kF64
                          : Format::kOther;
}

double floating_at(Format format, const std::byte* bytes, uint64_t i) {
  switch (format) {
    case Format::kF64:
      return load_number<double>(bytes, i);
    case Format::kF32:
      return static_cast<double>(load_number<float>(bytes, i));
    case Format::kBf16:
      return widened<8, 7>(load_number<uint16_t>(bytes, i));
    default:
      return widened<5, 10>(load_number<uint16_t>(bytes, i));
  }
}

void store_rounded(Format format, std::byte* out, uint64_t i, double value) {
  switch (format) {
    case Format::kF64:
      return store_number(out, i, value);
    case Format::kF32:
      return store_number(out, i, rounded<8, 23>(value));
    case Format::kBf16:
      return store_number(out, i, static_cast<uint16_t>(rounded<8, 7>(value)));
    default:
      return store_number(out, i, static_cast<uint16_t>(rounded<5, 10>(value)));
  }
}

// What an export to bf16 does to every number: a loop that vectorises.
uint64_t shorten(const std::byte* in, uint64_t count, std::byte* out) {
  uint64_t lost = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const auto bits = load_number<uint32_t>(in, i);
    const uint32_t size = bits & 0x7FFFFFFFU;
    const uint32_t up = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
    const uint32_t quiet = (bits >> 16) | 0x40U;
    store_number(out, i, static_cast<uint16_t>(size > 0x7F800000U ? quiet : up));
    lost += size < 0x7F800000U && (up & 0x7FFFU) == 0x7F80U ? 1 : 0;
  }
  return lost;
}

}  // namespace

bool is_floating(const WeightType& type) { return format_of(type) != Format::kOther; }

bool has_numbers(const WeightType& type) {
  const std::string_view name = type.name;
  return is_floating(type) || name == "BOOL" || name == "U8" || name == "I8" || name == "U16" ||
         name == "I16" || name == "U32" || name == "I32" || name == "U64" || name == "I64";
}

double number_at(const WeightType& type, const std::byte* bytes, uint64_t i) {
  if (const auto format = format_of(type); format != Format::kOther) {
    return floating_at(format, bytes, i);
  }
  const bool is_signed = type.name[0] == 'I';
  switch (type.bits) {
    case 8:
      return is_signed ? load_number<int8_t>(bytes, i) : load_number<uint8_t>(bytes, i);
    case 16:
      return is_signed ? load_number<int16_t>(bytes, i) : load_number<uint16_t>(bytes, i);
    case 32:
      return is_signed ? load_number<int32_t>(bytes, i) : load_number<uint32_t>(bytes, i);
    default:
      return is_signed ? static_cast<double>(load_number<int64_t>(bytes, i))
                       : static_cast<double>(load_number<uint64_t>(bytes, i));
  }
}

uint64_t convert_numbers(const WeightType& from,
                         const WeightType& to,
                         const std::byte* in,
                         uint64_t count,
                         std::byte* out) {
  if (&from == &to) {
    std::memcpy(out, in, count * from.bits / 8);
    return 0;
  }
  const auto source = format_of(from), target = format_of(to);
  if (source == Format::kF32 && target == Format::kBf16) {
    return shorten(in, count, out);
  }
  uint64_t lost = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const double value = floating_at(source, in, i);
    store_rounded(target, out, i, value);
    lost += std::isfinite(value) && std::isinf(floating_at(target, out, i)) ? 1 : 0;
  }
  return lost;
}

}  // namespace limbeck
