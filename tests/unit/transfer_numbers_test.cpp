// SPDX-License-Identifier: Apache-2.0
// Rounding to shorter types, against what defines it: the nearer neighbour, and of two that are
// equally near the even one.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/transfer/numbers.hpp"

namespace limbeck {
namespace {

const WeightType& type(const char* name) { return *find_weight_type(name); }

template <class To, class From>
To converted(const char* from, const char* to, From value) {
  To result{};
  convert_numbers(type(from), type(to), reinterpret_cast<const std::byte*>(&value), 1,
                  reinterpret_cast<std::byte*>(&result));
  return result;
}

double as_double(const char* name, uint16_t bits) {
  return number_at(type(name), reinterpret_cast<const std::byte*>(&bits), 0);
}

uint16_t to_bf16(float value) { return converted<uint16_t>("F32", "BF16", value); }

float of_bits(uint32_t bits) { return std::bit_cast<float>(bits); }

}  // namespace

TEST_CASE("every number of a 16-bit type survives the way up and back") {
  for (const char* name : {"BF16", "F16"}) {
    for (const char* wide : {"F32", "F64"}) {
      for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
        const auto value = as_double(name, static_cast<uint16_t>(bits));
        const auto back = std::string(wide) == "F32"
                              ? converted<uint16_t>(wide, name, static_cast<float>(value))
                              : converted<uint16_t>(wide, name, value);
        if (std::isnan(value)) {
          CHECK(std::isnan(as_double(name, back)));
        } else if (back != bits) {
          CAPTURE(bits);
          CHECK(back == bits);
        }
      }
    }
  }
}

TEST_CASE("between two neighbours the nearer one is taken, in the middle the even one") {
  struct Format {
    const char* name;
    uint16_t last;  // the greatest finite number
  };
  for (const auto& [name, last] : {Format{"BF16", 0x7F7F}, Format{"F16", 0x7BFF}}) {
    for (uint16_t bits = 0; bits < last; ++bits) {
      const auto above = static_cast<uint16_t>(bits + 1);
      const double low = as_double(name, bits), high = as_double(name, above);
      const double middle = low + (high - low) / 2;
      const auto even = bits % 2 == 0 ? bits : above;
      const bool is_right =
          converted<uint16_t>("F64", name, middle) == even &&
          converted<uint16_t>("F64", name, std::nextafter(middle, high)) == above &&
          converted<uint16_t>("F64", name, std::nextafter(middle, low)) == bits &&
          converted<uint16_t>("F64", name, -middle) == (even | 0x8000);
      if (!is_right) {
        CAPTURE(bits);
        CHECK(is_right);
      }
    }
  }
}

TEST_CASE("fp32 to bf16 is the same rounding in its own loop") {
  std::mt19937 random(7);
  for (int i = 0; i < 200000; ++i) {
    // Half of the low words are those next to a tie.
    const auto low = i % 2 == 0 ? 0x7FFEU + random() % 4 : random() & 0xFFFFU;
    const float value = of_bits((random() << 16) | (low & 0xFFFFU));
    const auto wide = converted<uint16_t>("F64", "BF16", static_cast<double>(value));
    if (!std::isnan(value) && to_bf16(value) != wide) {
      CAPTURE(std::bit_cast<uint32_t>(value));
      CHECK(to_bf16(value) == wide);
    }
  }
  CHECK(to_bf16(1.0F) == 0x3F80);
  CHECK(to_bf16(of_bits(0x3F808000)) == 0x3F80);  // a tie, the even one is below
  CHECK(to_bf16(of_bits(0x3F818000)) == 0x3F82);  // and above
  CHECK(to_bf16(of_bits(0x3F808001)) == 0x3F81);
  CHECK(to_bf16(-0.0F) == 0x8000);
  CHECK(to_bf16(of_bits(0x00000001)) == 0x0000);  // the least number there is
  CHECK(to_bf16(of_bits(0x00018000)) == 0x0002);  // below the normal ones
}

TEST_CASE("infinities and NaNs stay what they are, with their signs") {
  constexpr auto kInfinity = std::numeric_limits<float>::infinity();
  CHECK(to_bf16(kInfinity) == 0x7F80);
  CHECK(to_bf16(-kInfinity) == 0xFF80);
  // A payload in the low bits alone must not become an infinity; nor overflow into a zero.
  CHECK(to_bf16(of_bits(0x7F800001)) == 0x7FC0);
  CHECK(to_bf16(of_bits(0x7FFFFFFF)) == 0x7FFF);
  CHECK(to_bf16(of_bits(0xFFA10000)) == 0xFFE1);
  CHECK(converted<uint16_t>("F32", "F16", kInfinity) == 0x7C00);
  CHECK(converted<uint16_t>("F32", "F16", of_bits(0x7F800001)) == 0x7E00);
  CHECK(converted<uint16_t>("F32", "F16", of_bits(0xFFFFFFFF)) == 0xFFFF);
}

TEST_CASE("finite numbers that become infinite are counted") {
  const std::vector<float> numbers = {
      65504.0F, 65519.0F, 65520.0F, -1e30F, std::numeric_limits<float>::infinity(), 1.0F};
  std::vector<uint16_t> out(numbers.size());
  const auto lost =
      convert_numbers(type("F32"), type("F16"), reinterpret_cast<const std::byte*>(numbers.data()),
                      numbers.size(), reinterpret_cast<std::byte*>(out.data()));
  CHECK(lost == 2);
  CHECK(out == std::vector<uint16_t>{0x7BFF, 0x7BFF, 0x7C00, 0xFC00, 0x7C00, 0x3C00});
  const float greatest = std::numeric_limits<float>::max();
  uint16_t rounded = 0;
  CHECK(convert_numbers(type("F32"), type("BF16"), reinterpret_cast<const std::byte*>(&greatest), 1,
                        reinterpret_cast<std::byte*>(&rounded)) == 1);
  CHECK(rounded == 0x7F80);
}

TEST_CASE("integers are told as numbers") {
  const int16_t word = -2;
  const uint64_t large = uint64_t{1} << 40;
  CHECK(number_at(type("I16"), reinterpret_cast<const std::byte*>(&word), 0) == -2);
  CHECK(number_at(type("U16"), reinterpret_cast<const std::byte*>(&word), 0) == 65534);
  CHECK(number_at(type("U64"), reinterpret_cast<const std::byte*>(&large), 0) == 1099511627776.0);
  CHECK_FALSE(has_numbers(type("F8_E4M3")));
}

}  // namespace limbeck
