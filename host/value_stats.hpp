// SPDX-License-Identifier: Apache-2.0
// Least, greatest and mean of many numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iomanip>
#include <limits>
#include <sstream>
#include <string>

namespace limbeck::host {

struct ValueStats {
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();
  double sum = 0;
  double squares = 0;
  uint64_t finite = 0;
  uint64_t other = 0;  // nan and infinities

  void add(double value) {
    if (!std::isfinite(value)) {
      ++other;
      return;
    }
    least = std::min(least, value);
    most = std::max(most, value);
    sum += value;
    squares += value * value;
    ++finite;
  }
  std::string text() const {
    std::ostringstream out;
    out << std::setprecision(4);
    if (finite > 0) {
      const auto count = static_cast<double>(finite);
      const double mean = sum / count;
      out << "min " << least << ", max " << most << ", mean " << mean << ", std "
          << std::sqrt(std::max(0.0, squares / count - mean * mean));
    }
    if (other > 0) {
      out << (finite > 0 ? ", " : "") << other << " not finite";
    }
    return out.str();
  }
};

}  // namespace limbeck::host
