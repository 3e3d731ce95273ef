// SPDX-License-Identifier: Apache-2.0
#include "number_formats.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace parquet_data {
namespace {

static_assert(std::endian::native == std::endian::little, "files hold little-endian values");

float from_bits(uint32_t bits) { return std::bit_cast<float>(bits); }

float from_half(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000U} << 16;
  const uint32_t exponent = (half >> 10) & 0x1FU;
  const uint32_t fraction = half & 0x3FFU;
  if (exponent == 0x1F) {
    return from_bits(sign | 0x7F800000U | (fraction << 13));
  }
  if (exponent == 0) {  // zero and subnormal numbers: fraction * 2^-24
    const float value = static_cast<float>(fraction) * 0x1p-24F;
    return sign == 0 ? value : -value;
  }
  return from_bits(sign | ((exponent + 112) << 23) | (fraction << 13));
}

float from_bfloat16(uint16_t value) { return from_bits(uint32_t{value} << 16); }

using Convert = std::unique_ptr<float[]> (*)(std::string_view bytes, std::string& refused);

template <class T, float (*one)(T)>
std::unique_ptr<float[]> convert(std::string_view bytes, std::string&) {
  const size_t count = bytes.size() / sizeof(T);
  auto values = std::make_unique<float[]>(count);
  for (size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = one(value);
  }
  return values;
}

template <class T>
float rounded(T value) {
  return static_cast<float>(value);
}

// Beyond 2^24 not every integer is a 32-bit float.
template <class T>
std::unique_ptr<float[]> convert_integers(std::string_view bytes, std::string& refused) {
  const size_t count = bytes.size() / sizeof(T);
  auto values = std::make_unique<float[]>(count);
  for (size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = static_cast<float>(value);
    // As doubles: 2^64 as a float is no T.
    if (sizeof(T) > 2 &&
        (values[i] >= 0x1p63F || values[i] < -0x1p63F || static_cast<T>(values[i]) != value)) {
      refused = std::to_string(value);
      return nullptr;
    }
  }
  return values;
}

std::unique_ptr<float[]> convert_bools(std::string_view bytes, std::string& refused) {
  const auto odd =
      std::find_if(bytes.begin(), bytes.end(), [](char byte) { return byte > 1 || byte < 0; });
  if (odd != bytes.end()) {
    refused = "byte " + std::to_string(static_cast<uint8_t>(*odd));
    return nullptr;
  }
  return convert<uint8_t, rounded<uint8_t>>(bytes, refused);
}

struct Type {
  std::string_view name;
  size_t width;
  Convert convert;
};
constexpr std::array kTypes = {
    Type{"float32", 4, convert<float, rounded<float>>},
    Type{"float64", 8, convert<double, rounded<double>>},
    Type{"float16", 2, convert<uint16_t, from_half>},
    Type{"bfloat16", 2, convert<uint16_t, from_bfloat16>},
    Type{"int8", 1, convert_integers<int8_t>},
    Type{"int16", 2, convert_integers<int16_t>},
    Type{"int32", 4, convert_integers<int32_t>},
    Type{"int64", 8, convert_integers<int64_t>},
    Type{"uint8", 1, convert_integers<uint8_t>},
    Type{"uint16", 2, convert_integers<uint16_t>},
    Type{"uint32", 4, convert_integers<uint32_t>},
    Type{"uint64", 8, convert_integers<uint64_t>},
    Type{"bool", 1, convert_bools},
};

const Type* find(std::string_view dtype) {
  constexpr std::string_view kPrefix = "torch.";
  if (dtype.starts_with(kPrefix)) {
    dtype.remove_prefix(kPrefix.size());
  }
  const auto found = std::find_if(kTypes.begin(), kTypes.end(),
                                  [&](const Type& type) { return type.name == dtype; });
  return found == kTypes.end() ? nullptr : &*found;
}

}  // namespace

size_t width_of(std::string_view dtype) {
  const auto* type = find(dtype);
  return type == nullptr ? 0 : type->width;
}

std::string supported_types() {
  std::string all;
  for (const auto& type : kTypes) {
    all += (all.empty() ? "" : ", ") + std::string(type.name);
  }
  return all;
}

bool is_float32(std::string_view dtype) { return find(dtype) == &kTypes.front(); }

std::unique_ptr<float[]> to_floats(std::string_view bytes,
                                   std::string_view dtype,
                                   std::string& refused) {
  return find(dtype)->convert(bytes, refused);
}

}  // namespace parquet_data
