// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "core/ops/products.hpp"

#include <doctest/doctest.h>

using namespace limbeck;

namespace {

at::Tensor matrix(int64_t rows, int64_t columns, double frequency, at::ScalarType type) {
  return at::sin(at::arange(rows * columns, at::kDouble) * frequency)
      .view({rows, columns})
      .to(type);
}

double worst(const at::Tensor& got, const at::Tensor& expected) {
  REQUIRE((got.sizes() == expected.sizes()));
  return (got.to(at::kDouble) - expected.to(at::kDouble)).abs().max().item<double>();
}

struct Sizes {
  int64_t m, n, k;
};
// Every remainder of tiles and tasks, one element, and one that goes to a library.
const std::vector<Sizes> kSizes = {{1, 1, 1},   {5, 3, 7},    {12, 16, 4},    {13, 33, 5},
                                   {24, 8, 64}, {49, 130, 9}, {100, 300, 17}, {520, 520, 520}};

}  // namespace

TEST_CASE("products: all orders of memory, sizes and types give the product") {
  for (const auto type : {at::kFloat, at::kDouble}) {
    for (const auto& s : kSizes) {
      CAPTURE(s.m);
      CAPTURE(s.n);
      CAPTURE(s.k);
      const double bound = (type == at::kFloat ? 2e-6 : 1e-14) * static_cast<double>(s.k);
      const auto a = matrix(s.m, s.k, 0.7, type);
      const auto b = matrix(s.k, s.n, 1.3, type);
      const auto expected = at::mm(a.to(at::kDouble), b.to(at::kDouble));
      const auto a_turned = a.t().contiguous().t();
      const auto b_turned = b.t().contiguous().t();
      CHECK(worst(product(a, b), expected) < bound);
      CHECK(worst(product(a_turned, b), expected) < bound);
      CHECK(worst(product(a, b_turned), expected) < bound);
      CHECK(worst(product(a_turned, b_turned), expected) < bound);

      const auto bias = at::cos(at::arange(s.n, at::kDouble)).to(type);
      const auto weight = b.t().contiguous();
      CHECK(worst(linear_product(a, weight, bias), expected + bias) < bound);
      CHECK(worst(linear_product(a, weight, {}), expected) < bound);
      CHECK(worst(linear_product(a, weight, bias), expected + bias + 0.01) > 0.005);

      auto out = at::full({s.m, s.n}, 3.0, at::TensorOptions().dtype(type));
      product_into(out, a, b, true);
      CHECK(worst(out, expected + 3) < bound + 1e-5);
      product_into(out, a_turned, b_turned, false);
      CHECK(worst(out, expected) < bound);
    }
  }
}

TEST_CASE("products: slices of wider matrices") {
  const auto wide = matrix(40, 50, 0.7, at::kDouble);
  const auto a = wide.narrow(0, 3, 20).narrow(1, 5, 30);
  const auto b = wide.narrow(0, 10, 30).narrow(1, 7, 9);
  CHECK(worst(product(a, b), at::mm(a, b)) < 1e-13);
  const auto strided = wide.slice(1, 0, 50, 2).narrow(0, 0, 25);
  CHECK(worst(product(strided, strided), at::mm(strided, strided)) < 1e-13);
}

TEST_CASE("products: results do not depend on the number of threads") {
  const int before = at::get_num_threads();
  const auto a = matrix(300, 200, 0.7, at::kFloat);
  const auto b = matrix(200, 260, 1.3, at::kFloat);
  std::vector<at::Tensor> results;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    results.push_back(product(a, b));
  }
  at::set_num_threads(before);
  CHECK(at::equal(results[0], results[1]));
  CHECK(at::equal(results[0], results[2]));
}

TEST_CASE("products: no rows, no columns, nothing to sum") {
  const auto none = at::zeros({0, 4});
  CHECK((product(none, at::ones({4, 3})).sizes() == at::IntArrayRef({0, 3})));
  CHECK(at::equal(product(at::ones({2, 0}), at::ones({0, 3})), at::zeros({2, 3})));
}
