// SPDX-License-Identifier: Apache-2.0
// Measured values with the bands they must stay in, as a table for people and as JSON.
#pragma once

#include <limits>
#include <string>
#include <vector>

namespace quickstart {

struct Value {
  std::string name;  // "euler40_cfg2.acc"
  double value = 0;
  // The band; infinite ends are open.
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();

  bool has_band() const;
  bool is_inside() const { return value >= low && value <= high; }  // not for nan
};

class Report {
 public:
  // `band` is ">= 0.85", "<= 15" or empty; anything else is lb::Error(LB_INTERNAL).
  void add(const std::string& name, double value, const std::string& band = "");

  const std::vector<Value>& values() const { return values_; }
  bool has_passed() const;  // every value is inside its band

  // One object with a number for every value (null if it is not finite) and "passed".
  std::string json() const;
  // Name, value, band and verdict in columns.
  std::string table() const;

 private:
  std::vector<Value> values_;
};

}  // namespace quickstart
