// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace parquet_data {

// 64-bit FNV-1a.
class Hash {
 public:
  void add(std::string_view bytes) {
    for (const char byte : bytes) {
      value_ = (value_ ^ static_cast<uint8_t>(byte)) * 0x100000001B3U;
    }
  }
  void add(int64_t value) {
    char bytes[sizeof(value)];
    std::memcpy(bytes, &value, sizeof(value));
    add(std::string_view(bytes, sizeof(bytes)));
  }
  void add(const std::vector<float>& values) {
    for (const float value : values) {
      char bytes[sizeof(value)];
      std::memcpy(bytes, &value, sizeof(value));
      add(std::string_view(bytes, sizeof(bytes)));
    }
  }

  uint64_t value() const { return value_; }
  // Sixteen hexadecimal digits.
  std::string text() const {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string digits(16, '0');
    for (size_t i = 0; i < digits.size(); ++i) {
      digits[i] = kDigits[(value_ >> (60 - 4 * i)) & 0xFU];
    }
    return digits;
  }

 private:
  uint64_t value_ = 0xcbf29ce484222325U;
};

}  // namespace parquet_data
