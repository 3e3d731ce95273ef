// SPDX-License-Identifier: Apache-2.0
#include "quickstart/report.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <limbeck/error.hpp>

namespace quickstart {
namespace {

std::string shortest(double value) {
  char digits[64];
  return {digits, std::to_chars(digits, digits + sizeof(digits), value).ptr};
}

// Four significant digits.
std::string rounded(double value) {
  char digits[64];
  return {digits,
          std::to_chars(digits, digits + sizeof(digits), value, std::chars_format::general, 4).ptr};
}

std::string band_text(const Value& value) {
  if (!value.has_band()) {
    return "";
  }
  return std::isfinite(value.low) ? ">= " + shortest(value.low) : "<= " + shortest(value.high);
}

std::string padded(std::string text, size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

}  // namespace

bool Value::has_band() const { return std::isfinite(low) || std::isfinite(high); }

void Report::add(const std::string& name, double value, const std::string& band) {
  Value added{name, value};
  if (!band.empty()) {
    const bool is_low = band.starts_with(">= ");
    double end = 0;
    const char* last = band.data() + band.size();
    const auto parsed = band.size() > 3 ? std::from_chars(band.data() + 3, last, end)
                                        : std::from_chars_result{nullptr, std::errc()};
    if ((!is_low && !band.starts_with("<= ")) || parsed.ptr != last) {
      throw lb::Error(LB_INTERNAL, "'" + band + "' is no band");
    }
    (is_low ? added.low : added.high) = end;
  }
  values_.push_back(std::move(added));
}

bool Report::has_passed() const {
  return std::all_of(values_.begin(), values_.end(),
                     [](const Value& v) { return !v.has_band() || v.is_inside(); });
}

std::string Report::json() const {
  std::string text = "{\n";
  for (const auto& value : values_) {
    text += "  \"" + value.name +
            "\": " + (std::isfinite(value.value) ? shortest(value.value) : "null") + ",\n";
  }
  return text + "  \"passed\": " + (has_passed() ? "true" : "false") + "\n}\n";
}

std::string Report::table() const {
  size_t width = 0;
  for (const auto& value : values_) {
    width = std::max(width, value.name.size());
  }
  std::string text;
  for (const auto& value : values_) {
    auto line = padded(value.name, width) + "  " + padded(rounded(value.value), 10);
    if (value.has_band()) {
      line += "  " + padded(band_text(value), 10) + "  " + (value.is_inside() ? "pass" : "FAIL");
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text + (has_passed() ? "All values are inside their bands.\n"
                              : "Some values are outside their bands.\n");
}

}  // namespace quickstart
