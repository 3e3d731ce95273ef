// SPDX-License-Identifier: Apache-2.0
// The fused operators against the formulas of ATen operators that they stand for, against finite
// differences, and every instruction set against the others.
#include <cmath>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/ops/fused.hpp"
#include "core/ops/kernels/kernels.hpp"
#include "core/ops/short_attention.hpp"
#include "fused_formulas.hpp"

#include <doctest/doctest.h>

using namespace limbeck;
using namespace limbeck::testing;

namespace {

Formula attended(double scale) {
  return [scale](const Tensors& in) -> Tensors {
    return {short_attention(in[0], in[1], in[2], scale)};
  };
}
Formula attended_formula(double scale) {
  return [scale](const Tensors& in) -> Tensors {
    const auto weights = at::softmax(at::einsum("bthd,bshd->bhts", {in[0], in[1]}) * scale, -1);
    return {at::einsum("bhts,bshd->bthd", {weights, in[2]})};
  };
}

}  // namespace

TEST_CASE("fused: modulated_norm is its formula, for rows of all shapes") {
  const auto x = wave({kB, kS, kD}, 0.7) * 3 + 1;
  for (const auto& shape : std::vector<std::vector<int64_t>>{{kD}, {kB, kD}, {kB, 3, kD}}) {
    const Tensors in = {x, wave(shape, 1.3), wave(shape, 0.9)};
    check_equal(modulated(), modulated_formula(), in);
    CHECK(numeric_error(modulated(), in) < 1e-8);
    CHECK(compare(modulated(), modulated_formula(1.001), in, at::kDouble).value > 1e-4);
  }
}

TEST_CASE("fused: rows may be slices of a wider tensor") {
  const auto x = wave({kB, kS, kD}, 0.7);
  const auto all = wave({kB, 6, kD}, 1.1);
  const Formula sliced = [](const Tensors& in) -> Tensors {
    const auto rows = in[1].unbind(1);
    return {gated_residual(modulated_norm(in[0], rows[0], rows[1], kEps), in[0], rows[2])};
  };
  const Formula formula = [](const Tensors& in) -> Tensors {
    const auto rows = in[1].unbind(1);
    const auto normed = modulated_formula()({in[0], rows[0], rows[1]})[0];
    return {normed + in[0] * rows[2].unsqueeze(1)};
  };
  check_equal(sliced, formula, {x, all});
  CHECK(numeric_error(sliced, {x, all}) < 1e-8);
  CHECK(numeric_error(formula, {x, all}) < 1e-8);
}

TEST_CASE("fused: gated_residual is its formula") {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{kD}, {kB, kD}, {kB, 3, kD}}) {
    const Tensors in = {wave({kB, kS, kD}, 0.7), wave({kB, kS, kD}, 1.9), wave(shape, 0.4)};
    const Formula fused = [](const Tensors& t) -> Tensors {
      return {gated_residual(t[0], t[1], t[2])};
    };
    const Formula formula = [](const Tensors& t) -> Tensors {
      return {t[0] + t[1] * per_token(t[2], kS)};
    };
    check_equal(fused, formula, in);
    CHECK(numeric_error(fused, in) < 1e-8);
  }
}

TEST_CASE("fused: residual_norm is its formula, with and without gate") {
  for (const bool plus_one : {true, false}) {
    for (const bool has_gate : {true, false}) {
      for (const auto& shape : std::vector<std::vector<int64_t>>{{kD}, {kB, kD}, {kB, 2, kD}}) {
        const Tensors in = {wave({kB, kS, kD}, 0.7), wave(shape, 1.3), wave(shape, 0.9) + 2,
                            wave({kB, kS, kD}, 1.9), has_gate ? wave({kB, kD}, 0.4) : at::Tensor()};
        check_equal(residual_normed(plus_one), residual_normed_formula(plus_one), in);
        CHECK(numeric_error(residual_normed(plus_one), in) < 1e-8);
        CHECK(
            compare(residual_normed(plus_one), residual_normed_formula(!plus_one), in, at::kDouble)
                .value > 0.1);
      }
    }
  }
}

TEST_CASE("fused: residual_norm when only one of its results is used") {
  const Tensors in = {wave({kB, kS, kD}, 0.7), wave({kB, kD}, 1.3), wave({kB, kD}, 0.9),
                      wave({kB, kS, kD}, 1.9), wave({kB, kD}, 0.4)};
  for (const size_t which : {size_t{0}, size_t{1}}) {
    const Formula fused = [which](const Tensors& t) -> Tensors {
      return {residual_normed(true)(t)[which]};
    };
    const Formula formula = [which](const Tensors& t) -> Tensors {
      return {residual_normed_formula(true)(t)[which]};
    };
    const auto run = [&](const Formula& f) {
      auto copies = leaves(in, at::kDouble);
      auto grads = gradients(mixed(f(copies)), copies);
      for (size_t i = 0; i < grads.size(); ++i) {
        grads[i] = grads[i].defined() ? grads[i] : at::zeros_like(in[i]);
      }
      return grads;
    };
    CHECK(worst(run(fused), run(formula)) < 1e-12);
  }
}

TEST_CASE("fused: rms_norm_rope is its formula") {
  constexpr int64_t kHeads = 3, kWidth = 18;
  const Tensors in = {wave({kB, kS, kWidth}, 0.7), wave({kWidth}, 1.3) + 1.5};
  const auto table = angles(kS, kWidth / kHeads);
  check_equal(rotated(table, kHeads), rotated_formula(table, kHeads), in);
  check_equal(rotated({}, kHeads), rotated_formula({}, kHeads), in);
  CHECK(numeric_error(rotated(table, kHeads), in) < 1e-8);
  CHECK(compare(rotated(table, kHeads), rotated_formula(table, kHeads, -1), in, at::kDouble).value >
        0.1);
}

TEST_CASE("fused: rms_norm_rope reads slices of a wider product in place") {
  constexpr int64_t kHeads = 2, kWidth = 8;
  const auto table = angles(kS, kWidth / kHeads);
  const Formula fused = [&](const Tensors& t) -> Tensors {
    return {rms_norm_rope(t[0].narrow(2, kWidth, kWidth), t[1], table.to(t[0].scalar_type()),
                          kHeads, kEps)};
  };
  const Formula formula = [&](const Tensors& t) -> Tensors {
    return rotated_formula(table, kHeads)({t[0].narrow(2, kWidth, kWidth), t[1]});
  };
  check_equal(fused, formula, {wave({kB, kS, 3 * kWidth}, 0.7), wave({kWidth}, 1.3)});
}

TEST_CASE("fused: gelu_tanh is the formula of its name, from large to small") {
  const auto x = at::cat({at::linspace(-30, 30, 601, at::kDouble), wave({13}, 0.7)});
  const Formula fused = [](const Tensors& t) -> Tensors { return {gelu_tanh(t[0])}; };
  const Formula formula = [](const Tensors& t) -> Tensors { return {at::gelu(t[0], "tanh")}; };
  const Formula exact = [](const Tensors& t) -> Tensors { return {at::gelu(t[0])}; };
  check_equal(fused, formula, {x});
  CHECK(numeric_error(fused, {x}) < 1e-8);
  CHECK(compare(fused, exact, {x}, at::kDouble).value > 1e-5);
  // Far out in single precision: nothing overflows, NaN and infinity come through.
  const auto far = at::tensor({-1e30, -200.0, 200.0, 1e30}, at::kFloat);
  const auto got = gelu_tanh(far);
  CHECK(at::allclose(got, at::clamp_min(far, 0), 1e-6, 1e-4));
  CHECK(std::isnan(gelu_tanh(at::full({9}, NAN, at::kFloat))[8].item<float>()));
}

TEST_CASE("fused: short_attention is softmax(scale q k^T) v") {
  const Tensors in = {wave({kB, 5, 3, 4}, 0.7) * 2, wave({kB, 7, 3, 4}, 0.9),
                      wave({kB, 7, 3, 4}, 1.1)};
  check_equal(attended(0.5), attended_formula(0.5), in);
  CHECK(numeric_error(attended(0.5), in) < 1e-8);
  CHECK(compare(attended(0.5), attended_formula(0.51), in, at::kDouble).value > 1e-4);
}

TEST_CASE("fused: attention is short by its matrix of weights") {
  const auto q = at::zeros({1, 256, 1, 4});
  CHECK(is_short_attention(q, q, q));
  CHECK(!is_short_attention(at::zeros({1, 257, 1, 4}), q, q));
  CHECK(!is_short_attention(q.to(at::kBFloat16), q.to(at::kBFloat16), q.to(at::kBFloat16)));
}

TEST_CASE("fused: without gradients the same values, and nothing is recorded") {
  const auto x = wave({kB, kS, kD}, 0.7).set_requires_grad(true);
  const auto rows = wave({kB, kD}, 0.3);
  const auto with = modulated_norm(x, rows, rows, kEps);
  const at::NoGradGuard no_grad;
  const auto without = modulated_norm(x, rows, rows, kEps);
  CHECK(with.requires_grad());
  CHECK(!without.requires_grad());
  CHECK(at::equal(with.detach(), without));
}

TEST_CASE("fused: 16-bit operands are computed in the dtype of the rows and rounded once") {
  const auto x = wave({kB, kS, kD}, 0.7).to(at::kBFloat16);
  const auto rows = wave({kB, kD}, 0.3).to(at::kFloat);
  const auto got = modulated_norm(x, rows, rows, kEps);
  CHECK((got.scalar_type() == at::kBFloat16));
  CHECK(at::equal(got, modulated_norm(x.to(at::kFloat), rows, rows, kEps).to(at::kBFloat16)));
  const auto sum = gated_residual(x, x, rows);
  CHECK((sum.scalar_type() == at::kBFloat16));
}

TEST_CASE("fused: rms_norm_rope takes tables of 16 bits") {
  constexpr int64_t kHeads = 3, kWidth = 18;
  const auto x = wave({kB, kS, kWidth}, 0.7);
  const auto weight = wave({kWidth}, 1.3) + 1.5;
  const auto table = angles(kS, kWidth / kHeads);
  const auto exact = rms_norm_rope(x, weight, table, kHeads, kEps);
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const auto got = rms_norm_rope(x.to(type), weight.to(type), table.to(type), kHeads, kEps);
    CHECK((got.scalar_type() == type));
    const double bound = type == at::kHalf ? 0.01 : 0.06;  // some roundings of values below 4
    CHECK((got.to(at::kDouble) - exact).abs().max().item<double>() < bound);
    const auto turned_back = rms_norm_rope(x, weight, -table, kHeads, kEps);
    CHECK((got.to(at::kDouble) - turned_back).abs().max().item<double>() > 10 * bound);
  }
}

TEST_CASE("fused: gradients do not depend on the number of threads beyond rounding") {
  const Tensors in = {wave({4, 600, 64}, 0.7), wave({4, 64}, 1.3), wave({4, 64}, 0.9)};
  const int before = at::get_num_threads();
  const auto run = [&](int threads) {
    at::set_num_threads(threads);
    const auto copies = leaves(in, at::kFloat);
    return gradients(mixed(modulated()(copies)), copies);
  };
  const auto one = run(1);
  const auto two = run(2);
  const auto again = run(2);
  at::set_num_threads(before);
  CHECK(worst(two, one) < 1e-5);
  for (size_t i = 0; i < two.size(); ++i) {
    CHECK(at::equal(two[i], again[i]));
  }
}

TEST_CASE("fused: inside a parallel region each thread has sums of its own") {
  const Tensors in = {wave({2, 40, 32}, 0.7), wave({2, 32}, 1.3), wave({2, 32}, 0.9)};
  const auto run = [&] {
    const at::AutoGradMode with_history(true);
    const auto copies = leaves(in, at::kDouble);
    return gradients(mixed(modulated()(copies)), copies);
  };
  const auto expected = run();
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  std::vector<Tensors> got(3);
  at::parallel_for(0, 3, 1, [&](int64_t begin, int64_t end) {
    for (auto i = begin; i < end; ++i) {
      got[static_cast<size_t>(i)] = run();
    }
  });
  at::set_num_threads(before);
  for (const auto& grads : got) {
    CHECK(worst(grads, expected) < 1e-13);
  }
}

TEST_CASE("fused: a graph is used up by backward, and an input that changed is noticed") {
  const auto x = wave({kB, kS, kD}, 0.7).set_requires_grad(true);
  const auto rows = wave({kB, kD}, 0.3);
  const auto y = modulated_norm(x, rows, rows, kEps).sum();
  y.backward();
  CHECK_THROWS(y.backward());
  auto z = x * 1;
  const auto u = modulated_norm(z, rows, rows, kEps).sum();
  z.add_(1);
  CHECK_THROWS(u.backward());
}

TEST_CASE("fused: operands that do not fit are an error") {
  const auto x = at::zeros({kB, kS, kD});
  CHECK_THROWS(modulated_norm(x, at::zeros({kD + 1}), at::zeros({kD + 1}), kEps));
  CHECK_THROWS(modulated_norm(x, at::zeros({kB, 4, kD}), at::zeros({kB, 4, kD}), kEps));
  CHECK_THROWS(modulated_norm(x, at::zeros({kD}), at::zeros({kB, kD}), kEps));
  CHECK_THROWS(modulated_norm(x[0], at::zeros({kD}), at::zeros({kD}), kEps));
  CHECK_THROWS(gated_residual(x, at::zeros({kB, kS, 1}), at::zeros({kD})));
  CHECK_THROWS(rms_norm_rope(x, at::zeros({kD}), std::nullopt, 2, kEps));
  CHECK_THROWS(
      rms_norm_rope(at::zeros({kB, kS, 8}), at::zeros({8}), at::zeros({kS, 3, 2}), 2, kEps));
}

// ---- The loops themselves: every instruction set that this CPU has against double precision.

namespace {

template <class T>
double worst_element(const std::vector<T>& got, const std::vector<double>& expected) {
  double most = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(got[i]) - expected[i]) /
                              std::max(1.0, std::abs(expected[i])));
  }
  return most;
}

// Results of one set for `width` columns, one vector after the other.
template <class T>
std::vector<T> all_loops(const kernels::Kernels<T>& loops, int64_t width) {
  const int64_t rows = 5;
  const auto fill = [](int64_t count, double frequency) {
    std::vector<T> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<T>(2 * std::sin(frequency * static_cast<double>(i) + 0.1));
    }
    return values;
  };
  auto x = fill(rows * width, 0.7);
  const auto y = fill(rows * width, 1.3);
  const auto row = fill(width, 0.4);
  std::vector<T> z(x.size()), u(x.size()), mean(rows), rstd(rows), sums(3 * x.size());
  kernels::NormForward<T> norm;
  norm.width = width;
  norm.eps = kEps;
  norm.x = x.data();
  norm.y = y.data();
  norm.gate = norm.scale = norm.shift = row.data();
  norm.gate_groups = norm.scale_groups = norm.shift_groups = {rows, rows, 0, 0};
  norm.z = z.data();
  norm.u = u.data();
  norm.mean = mean.data();
  norm.rstd = rstd.data();
  loops.norm_forward(norm, 0, rows);
  std::vector<T> results = z;
  const auto keep = [&](const std::vector<T>& more) {
    results.insert(results.end(), more.begin(), more.end());
  };
  keep(u);
  std::vector<T> grad_x(x.size()), grad_y(x.size());
  kernels::NormBackward<T> back;
  back.width = width;
  back.z = z.data();
  back.mean = mean.data();
  back.rstd = rstd.data();
  back.grad_u = x.data();
  back.grad_z = y.data();
  back.scale = back.gate = row.data();
  back.scale_groups = back.gate_groups = norm.gate_groups;
  back.grad_x = grad_x.data();
  back.grad_scale = sums.data();
  back.grad_shift = sums.data() + width;
  back.grad_gate = sums.data() + 2 * width;
  back.y = y.data();
  back.grad_y = grad_y.data();
  loops.norm_backward(back, 0, rows);
  keep(grad_x);
  keep(grad_y);
  loops.gelu_forward(x.data(), u.data(), rows * width);
  keep(u);
  loops.gelu_backward(x.data(), y.data(), u.data(), rows * width);
  keep(u);
  auto p = x;
  loops.softmax(p.data(), rows, width);
  keep(p);
  auto grad = y;
  loops.softmax_backward(p.data(), grad.data(), rows, width);
  keep(grad);
  loops.column_sums(x.data(), rows, width, width, sums.data());
  keep(sums);
  auto average = y;
  auto moment = y;
  auto second = std::vector<T>(x.size(), T(0.5));
  kernels::AdamW<T> adamw;
  adamw.param = x.data();
  adamw.grad = y.data();
  adamw.exp_avg = moment.data();
  adamw.exp_avg_sq = second.data();
  adamw.average = average.data();
  adamw.beta1 = T(0.9);
  adamw.beta2 = T(0.99);
  adamw.rest1 = T(0.1);
  adamw.rest2 = T(0.01);
  adamw.step = T(0.01);
  adamw.eps = T(1e-8);
  adamw.average_weight = T(0.25);
  loops.adamw(adamw, 1, rows * width - 1);
  keep(x);
  keep(average);
  return results;
}

}  // namespace

TEST_CASE("loops: every instruction set computes the same") {
  for (const int64_t width : {2, 3, 8, 16, 24, 31, 96}) {
    const auto doubles =
        all_loops(kernels::kernels<double>(kernels::InstructionSet::kBaseline), width);
    auto shifted = doubles;
    shifted[0] += 0.01;
    for (const auto set : kernels::available()) {
      const std::string name = kernels::name_of(set);
      CAPTURE(name);
      CAPTURE(width);
      CHECK(worst_element(all_loops(kernels::kernels<float>(set), width), doubles) < 2e-5);
      CHECK(worst_element(all_loops(kernels::kernels<double>(set), width), doubles) < 1e-12);
      CHECK(worst_element(all_loops(kernels::kernels<double>(set), width), shifted) > 1e-3);
    }
  }
}
