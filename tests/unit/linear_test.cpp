// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <torch/csrc/autograd/autograd.h>

#include "core/ops/linear.hpp"

#include <doctest/doctest.h>

using limbeck::GradSlot;
using limbeck::linear;

namespace {

struct Operands {
  at::Tensor x = at::sin(at::arange(24, at::kDouble)).view({2, 3, 4}).set_requires_grad(true);
  at::Tensor weight = at::cos(at::arange(20, at::kDouble)).view({5, 4}).set_requires_grad(true);
  at::Tensor bias = at::sin(at::arange(5, at::kDouble) * 3).set_requires_grad(true);
};

}  // namespace

TEST_CASE("linear: values and gradients are those of at::linear") {
  const Operands a;
  const Operands b;
  const auto got = linear(a.x, a.weight, a.bias, nullptr, nullptr);
  const auto expected = at::linear(b.x, b.weight, b.bias);
  CHECK(at::allclose(got, expected, 1e-14, 1e-14));

  (got * got).sum().backward();
  (expected * expected).sum().backward();
  CHECK(at::allclose(a.x.grad(), b.x.grad(), 1e-13, 1e-13));
  CHECK(at::allclose(a.weight.grad(), b.weight.grad(), 1e-13, 1e-13));
  CHECK(at::allclose(a.bias.grad(), b.bias.grad(), 1e-13, 1e-13));
  CHECK(!at::allclose(a.weight.grad(), b.weight.grad() * 1.0001, 1e-6, 1e-6));
}

TEST_CASE("linear: without bias, and for a matrix") {
  const Operands a;
  const auto rows = a.x.detach().view({6, 4});
  CHECK(at::allclose(linear(rows, a.weight, std::nullopt, nullptr, nullptr),
                     at::linear(rows, a.weight)));
  linear(rows, a.weight, std::nullopt, nullptr, nullptr).sum().backward();
  CHECK(at::allclose(a.weight.grad(), rows.sum(0).expand({5, 4})));
}

TEST_CASE("linear: a slot receives the weight's gradient, the first one over what was there") {
  const Operands a;
  const Operands b;
  bool touched = false;
  GradSlot slot{at::full({5, 4}, 7.0, at::kDouble), true, true, &touched};

  linear(a.x, a.weight, a.bias, nullptr, nullptr).square().sum().backward();
  linear(b.x, b.weight, b.bias, &slot, nullptr).square().sum().backward();
  CHECK(touched);
  CHECK(!slot.is_fresh);
  CHECK(!b.weight.grad().defined());
  CHECK(at::equal(slot.grad, a.weight.grad()));
  CHECK(at::equal(b.bias.grad(), a.bias.grad()));

  linear(b.x, b.weight, b.bias, &slot, nullptr).square().sum().backward();
  CHECK(at::allclose(slot.grad, a.weight.grad() * 2, 1e-13, 1e-13));
}

TEST_CASE("linear: a shared slot of the bias is added to, in strips and with threads alike") {
  const auto x = at::sin(at::arange(7 * 4, at::kDouble)).view({7, 4});
  const auto weight = at::cos(at::arange(200 * 4, at::kDouble)).view({200, 4});
  const auto bias = at::zeros({200}, at::kDouble).set_requires_grad(true);
  bool touched = false;
  GradSlot slot{at::full({200}, 1.5, at::kDouble), false, false, &touched};
  const auto seed = at::sin(at::arange(7 * 200, at::kDouble) * 0.3).view({7, 200});
  linear(x, weight, bias, nullptr, &slot).backward(seed);
  CHECK(touched);
  CHECK(!bias.grad().defined());
  CHECK(at::allclose(slot.grad, seed.sum(0) + 1.5, 1e-13, 1e-13));
  CHECK(!at::allclose(slot.grad, seed.sum(0), 1e-3, 1e-3));
}

TEST_CASE("linear: differentiable twice") {
  const Operands a;
  const Operands b;
  const auto twice = [](const Operands& o, const at::Tensor& y) {
    const auto first = torch::autograd::grad({y.sin().sum()}, {o.x, o.weight}, {}, true, true);
    (first[0].square().sum() + first[1].square().sum()).backward();
  };
  twice(a, linear(a.x, a.weight, a.bias, nullptr, nullptr));
  twice(b, at::linear(b.x, b.weight, b.bias));
  CHECK(at::allclose(a.x.grad(), b.x.grad(), 1e-12, 1e-12));
  CHECK(at::allclose(a.weight.grad(), b.weight.grad(), 1e-12, 1e-12));
}

TEST_CASE("linear: a weight that nobody asked for is left alone") {
  const Operands a;
  bool touched = false;
  GradSlot slot{at::zeros({5, 4}, at::kDouble), true, true, &touched};
  const auto y = linear(a.x, a.weight.detach(), a.bias, &slot, nullptr);
  y.sum().backward();
  CHECK(!touched);
  CHECK(slot.is_fresh);
  CHECK(a.x.grad().defined());
}

TEST_CASE("linear: operands that do not fit are an error") {
  const Operands a;
  CHECK_THROWS(linear(a.x, a.weight.t(), std::nullopt, nullptr, nullptr));
  CHECK_THROWS(linear(a.x, a.bias, std::nullopt, nullptr, nullptr));
}
