// SPDX-License-Identifier: Apache-2.0
// The formulas of the fused operators, written out in ATen operators, and how two functions of
// tensors are compared. Included after torch; includes doctest.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/ops/fused.hpp"

#include <doctest/doctest.h>

namespace limbeck::testing {

using Tensors = std::vector<at::Tensor>;
using Formula = std::function<Tensors(const Tensors&)>;

inline at::Tensor wave(at::IntArrayRef sizes, double frequency, double phase = 0.3) {
  int64_t numel = 1;
  for (const auto size : sizes) {
    numel *= size;
  }
  return at::sin(at::arange(numel, at::kDouble) * frequency + phase).view(sizes);
}

// Copies with gradients; undefined ones stay so.
inline Tensors leaves(const Tensors& values, at::ScalarType type) {
  Tensors copies;
  for (const auto& value : values) {
    copies.push_back(value.defined() ? value.detach().to(type).clone().set_requires_grad(true)
                                     : at::Tensor());
  }
  return copies;
}

// A scalar that every element of the outputs enters with a weight of its own.
inline at::Tensor mixed(const Tensors& out) {
  at::Tensor sum = at::zeros({}, out[0].options());
  for (size_t i = 0; i < out.size(); ++i) {
    const auto weights = wave(out[i].sizes(), 0.37 + 0.1 * static_cast<double>(i));
    sum = sum + (out[i] * weights.to(out[i].scalar_type())).sum();
  }
  return sum;
}

inline Tensors defined(const Tensors& tensors) {
  Tensors result;
  for (const auto& tensor : tensors) {
    if (tensor.defined()) {
      result.push_back(tensor);
    }
  }
  return result;
}

inline Tensors gradients(const at::Tensor& loss, const Tensors& inputs) {
  return torch::autograd::grad({loss}, defined(inputs), {}, std::nullopt, false, true);
}

inline double worst(const Tensors& got, const Tensors& expected) {
  REQUIRE(got.size() == expected.size());
  double most = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    REQUIRE(got[i].defined() == expected[i].defined());
    if (!got[i].defined()) {
      continue;
    }
    REQUIRE(got[i].sizes() == expected[i].sizes());
    const auto scale = std::max(1.0, expected[i].abs().max().item<double>());
    const auto difference = (got[i].to(at::kDouble) - expected[i].to(at::kDouble)).abs().max();
    most = std::max(most, difference.item<double>() / scale);
  }
  return most;
}

struct Differences {
  double value = 0;
  double gradient = 0;
  double second = 0;
};

// Values, gradients and gradients of a function of gradients of two formulas.
inline Differences compare(const Formula& fused,
                           const Formula& formula,
                           const Tensors& values,
                           at::ScalarType type) {
  const auto run = [&](const Formula& f) {
    const auto in = leaves(values, type);
    const auto out = f(in);
    // Without a graph of the gradients, as in training; then with one.
    const auto loss = mixed(out);
    const auto plain = torch::autograd::grad({loss}, defined(in), {}, true, false, true);
    const auto first = torch::autograd::grad({loss}, defined(in), {}, true, true, true);
    at::Tensor sum = at::zeros({}, out[0].options());
    for (const auto& grad : first) {
      if (grad.defined()) {
        sum = sum + (grad * grad).sum();
      }
    }
    return std::tuple(out, plain, first, gradients(sum, in));
  };
  const auto [out, plain, first, second] = run(fused);
  const auto [expected_out, expected_plain, expected_first, expected_second] = run(formula);
  return {worst(out, expected_out),
          std::max(worst(plain, expected_plain), worst(first, expected_first)),
          worst(second, expected_second)};
}

inline void check_equal(const Formula& fused, const Formula& formula, const Tensors& values) {
  const auto exact = compare(fused, formula, values, at::kDouble);
  CHECK(exact.value < 1e-13);
  CHECK(exact.gradient < 1e-12);
  CHECK(exact.second < 1e-11);
  const auto single = compare(fused, formula, values, at::kFloat);
  CHECK(single.value < 2e-6);
  CHECK(single.gradient < 1e-5);
}

// The largest relative error of analytic gradients against central differences.
inline double numeric_error(const Formula& f, const Tensors& values) {
  auto in = leaves(values, at::kDouble);
  const auto analytic = gradients(mixed(f(in)), in);
  double most = 0;
  size_t which = 0;
  for (auto& input : in) {
    if (!input.defined()) {
      continue;
    }
    const auto grad = analytic[which++].contiguous().view({-1});
    const at::NoGradGuard no_grad;
    auto flat = input.detach().view({-1});
    for (int64_t i = 0; i < flat.numel(); i += 1 + flat.numel() / 7) {
      constexpr double kStep = 1e-5;
      const double before = flat[i].item<double>();
      flat[i] = before + kStep;
      const double up = mixed(f(in)).item<double>();
      flat[i] = before - kStep;
      const double down = mixed(f(in)).item<double>();
      flat[i] = before;
      const double numeric = (up - down) / (2 * kStep);
      most = std::max(
          most, std::abs(numeric - grad[i].item<double>()) / std::max(1.0, std::abs(numeric)));
    }
  }
  return most;
}

// Rows [D], [b, D] or [b, g, D] for every token of x [b, S, D].
inline at::Tensor per_token(const at::Tensor& rows, int64_t tokens) {
  if (rows.dim() == 1) {
    return rows;
  }
  return rows.dim() == 2 ? rows.unsqueeze(1) : rows.repeat_interleave(tokens / rows.size(1), 1);
}

constexpr double kEps = 1e-6;
constexpr int64_t kB = 2, kS = 6, kD = 13;  // a width that is no multiple of any vector

inline Formula modulated() {
  return [](const Tensors& in) -> Tensors { return {modulated_norm(in[0], in[1], in[2], kEps)}; };
}
inline Formula modulated_formula(double one = 1) {
  return [one](const Tensors& in) -> Tensors {
    const auto normed = at::layer_norm(in[0], {in[0].size(2)}, {}, {}, kEps);
    return {normed * (one + per_token(in[2], in[0].size(1))) + per_token(in[1], in[0].size(1))};
  };
}

inline Formula residual_normed(bool plus_one) {
  return [plus_one](const Tensors& in) -> Tensors {
    const auto gate = in[4].defined() ? std::optional(in[4]) : std::nullopt;
    const auto [z, u] = residual_norm(in[0], in[3], gate, in[1], in[2], plus_one, kEps);
    return {z, u};
  };
}
inline Formula residual_normed_formula(bool plus_one) {
  return [plus_one](const Tensors& in) -> Tensors {
    const auto tokens = in[0].size(1);
    const auto z = in[4].defined() ? in[0] + in[3] * per_token(in[4], tokens) : in[0] + in[3];
    const auto normed = at::layer_norm(z, {z.size(2)}, {}, {}, kEps);
    return {z, normed * (per_token(in[2], tokens) + (plus_one ? 1 : 0)) + per_token(in[1], tokens)};
  };
}

inline at::Tensor angles(int64_t tokens, int64_t head) {
  const auto angle = at::arange(tokens * head / 2, at::kDouble).view({tokens, head / 2}) * 0.21;
  return at::stack({angle.cos(), angle.sin()}, -1);
}

inline Formula rotated(const at::Tensor& table, int64_t heads) {
  return [=](const Tensors& in) -> Tensors {
    const auto turns =
        table.defined() ? std::optional(table.to(in[0].scalar_type())) : std::nullopt;
    return {rms_norm_rope(in[0], in[1], turns, heads, kEps)};
  };
}
// `direction` -1 turns the other way.
inline Formula rotated_formula(const at::Tensor& table, int64_t heads, double direction = 1) {
  return [=](const Tensors& in) -> Tensors {
    const auto& x = in[0];
    const auto normed = x / (x.square().mean(-1, true) + kEps).sqrt() * in[1];
    const auto split = normed.unflatten(2, {heads, -1});
    if (!table.defined()) {
      return {split};
    }
    const auto pairs = split.unflatten(-1, {-1, 2});
    const auto even = pairs.select(-1, 0);
    const auto odd = pairs.select(-1, 1);
    const auto wide = table.to(x.scalar_type()).unsqueeze(1);
    const auto c = wide.select(-1, 0);
    const auto s = wide.select(-1, 1) * direction;
    return {at::stack({even * c - odd * s, even * s + odd * c}, -1).flatten(3, 4)};
  };
}

}  // namespace limbeck::testing
