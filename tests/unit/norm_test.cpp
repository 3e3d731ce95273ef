// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include <ATen/ATen.h>

#include "core/optim/norm.hpp"

#include <doctest/doctest.h>

using limbeck::squared_norm;

TEST_CASE("norm: 1 ... 8 has the square 204") {
  CHECK(squared_norm(at::arange(1, 9, at::kFloat)) == 204.0);
  CHECK(std::sqrt(204.0) == doctest::Approx(14.2828569).epsilon(1e-8));
}

TEST_CASE("norm: a large buffer is summed to the accuracy of double") {
  const auto values = at::sin(at::arange(1'000'003, at::kDouble)).to(at::kFloat);
  const double exact = values.to(at::kDouble).square().sum().item<double>();

  CHECK(std::abs(squared_norm(values) - exact) / exact < 1e-7);
  // One element more is noticed.
  const double without_last = squared_norm(values.narrow(0, 0, 1'000'002));
  CHECK(std::abs(without_last - exact) / exact > 1e-8);
}

TEST_CASE("norm: lengths around the chunk size") {
  for (const int64_t size : {0, 1, 15, 16, 17, 4095, 4096, 4097, 8192}) {
    CAPTURE(size);
    CHECK(squared_norm(at::ones({size}, at::kDouble)) == static_cast<double>(size));
  }
}

TEST_CASE("norm: inf and nan come through") {
  auto values = at::ones({5000});
  values[4999] = std::numeric_limits<float>::infinity();
  CHECK(std::isinf(squared_norm(values)));
  values[1] = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(squared_norm(values)));
}

TEST_CASE("norm: a strided tensor is refused") { CHECK_THROWS(squared_norm(at::ones({4, 4}).t())); }
