// SPDX-License-Identifier: Apache-2.0
// Where the fused operators go for tensors of other devices than the CPU: to the halves that a
// device has registered, and to the formula where it has none.
#include <string>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/library.h>

#include "core/ops/adamw.hpp"
#include "core/ops/devices.hpp"
#include "core/ops/fused.hpp"
#include "fused_formulas.hpp"

#include <doctest/doctest.h>

using namespace limbeck;
using namespace limbeck::testing;

namespace {

// A tensor of a device that nobody implements, without memory.
at::Tensor foreign(at::IntArrayRef sizes, at::ScalarType type) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0,
                       c10::DataPtr(nullptr, c10::Device(c10::kPrivateUse1, 0)), nullptr, false);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(type));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return tensor;
}

at::Tensor foreign_gelu(const at::Tensor& x) { return at::full({x.dim()}, 42); }

at::Tensor facts_of(bool y, bool gate, bool norm, bool plus_one) {
  return at::tensor(std::vector<int64_t>{y, gate, norm, plus_one});
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> foreign_norm(
    const at::Tensor& x,
    const std::optional<at::Tensor>& y,
    const std::optional<at::Tensor>& gate,
    const std::optional<at::Tensor>& /*shift*/,
    const std::optional<at::Tensor>& scale,
    bool plus_one,
    double /*eps*/) {
  const auto facts = facts_of(y.has_value(), gate.has_value(), scale.has_value(), plus_one);
  return {y.has_value() ? facts : at::Tensor(), scale.has_value() ? facts : at::Tensor(),
          at::zeros({x.dim()})};
}

// What an operator said that a device does not have.
template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

// Shapes and types of outputs and gradients, and the name of the node that made the first.
std::vector<std::string> traces(const Formula& f, const Tensors& in) {
  const auto out = f(in);
  Tensors seeds;
  for (const auto& tensor : out) {
    seeds.push_back(at::zeros_like(tensor));
  }
  const auto grads =
      torch::autograd::grad(out, defined(in), seeds, std::nullopt, /*create_graph=*/false, true);
  std::vector<std::string> all = {out[0].grad_fn()->name()};
  for (const auto* list : {&out, &grads}) {
    for (const auto& tensor : *list) {
      all.push_back(tensor.defined() ? c10::str(tensor.sizes(), tensor.scalar_type()) : "none");
    }
  }
  return all;
}

Tensors on_meta(const Tensors& values) {
  Tensors moved;
  for (const auto& value : values) {
    moved.push_back(value.defined() ? value.detach().to(at::kMeta).set_requires_grad(true)
                                    : at::Tensor());
  }
  return moved;
}

struct Case {
  Formula fused;
  Tensors values;
};

std::vector<Case> cases() {
  const auto x = wave({kB, kS, kD}, 0.7);
  const auto rows = wave({kB, 3, kD}, 0.4);
  const auto row = wave({kD}, 0.4);
  const auto table = angles(kS, 6);
  const auto rope = [table](const Tensors& in) -> Tensors {
    const auto wide = in[0].scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    return {rms_norm_rope(in[0], in[1], table.to(in[0].options().dtype(wide)), 3, kEps)};
  };
  return {
      {modulated(), {x, rows, rows}},
      {residual_normed(true), {x, rows, rows, x, row}},
      {residual_normed(false), {x, row, row, x, {}}},
      {[](const Tensors& in) -> Tensors { return {gated_residual(in[0], in[1], in[2])}; },
       {x, x, rows}},
      {rope, {wave({kB, kS, 18}, 0.7), wave({18}, 0.3)}},
      {[](const Tensors& in) -> Tensors { return {gelu_tanh(in[0])}; }, {x}},
  };
}

}  // namespace

TEST_CASE("devices: on the meta device the operators and their gradients have the CPU's shapes") {
  for (const auto type : {at::kFloat, at::kDouble}) {
    for (const auto& [fused, values] : cases()) {
      const auto on_cpu = leaves(values, type);
      const auto expected = traces(fused, on_cpu);
      CHECK(expected[0].starts_with("Limbeck"));
      CHECK(traces(fused, on_meta(on_cpu)) == expected);
    }
  }
}

TEST_CASE("devices: what the CPU computes with formulas is a formula on the meta device") {
  for (const auto& [fused, values] : cases()) {
    const auto on_cpu = leaves(values, at::kBFloat16);
    const auto expected = traces(fused, on_cpu);
    CHECK_FALSE(expected[0].starts_with("Limbeck"));
    CHECK(traces(fused, on_meta(on_cpu)) == expected);
  }
}

TEST_CASE("devices: one of two results of the meta device is enough to go back") {
  for (const size_t which : {size_t{0}, size_t{1}}) {
    const Formula fused = [which](const Tensors& in) -> Tensors {
      return {residual_normed(true)(in)[which]};
    };
    const auto row = wave({kD}, 0.4);
    const auto on_cpu =
        leaves({wave({kB, kS, kD}, 0.7), row, row, wave({kB, kS, kD}, 0.3), row}, at::kFloat);
    CHECK(traces(fused, on_meta(on_cpu)) == traces(fused, on_cpu));
  }
}

TEST_CASE("devices: an optimizer's pass over the meta device counts as a change") {
  const auto param = at::zeros({8}, at::TensorOptions(at::kMeta));
  const auto other = at::zeros_like(param);
  const auto before = param._version();
  adamw_ema(param, other, at::zeros_like(param), at::zeros_like(param), {}, {});
  CHECK(param._version() > before);
  CHECK(other._version() == 0);
}

TEST_CASE("devices: a device without halves gets the formula") {
  const auto x = foreign({kB, kS, kD}, at::kFloat);
  const auto row = foreign({kD}, at::kFloat);
  CHECK_FALSE(devices::has(devices::gelu_forward(), x, {}));
  for (const auto& text :
       {refusal([&] { gelu_tanh(x); }), refusal([&] { modulated_norm(x, row, row, kEps); }),
        refusal([&] { gated_residual(x, x, row); })}) {
    CHECK_FALSE(text.empty());
    CHECK(text.find("limbeck::") == std::string::npos);
  }
}

TEST_CASE("devices: registered halves are called for the types that they promise") {
  const torch::Library library = [] {
    torch::Library made(torch::Library::IMPL, "limbeck", c10::DispatchKey::PrivateUse1, __FILE__,
                        __LINE__);
    made.impl("_gelu_tanh_forward", foreign_gelu);
    made.impl("_residual_norm_forward", foreign_norm);
    return made;
  }();
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto x = foreign({kB, kS, kD}, type);
    CHECK(at::equal(gelu_tanh(x), at::full({3}, 42)));
    for (const auto rows_type : {at::kFloat, type}) {
      const auto row = foreign({kD}, rows_type);
      CHECK(at::equal(modulated_norm(x, row, row, kEps), facts_of(false, false, true, true)));
      CHECK(at::equal(gated_residual(x, x, row), facts_of(true, true, false, true)));
      const auto u = std::get<1>(residual_norm(x, x, std::nullopt, row, row, false, kEps));
      CHECK(at::equal(u, facts_of(true, false, true, false)));
    }
  }
  const auto x = foreign({kB, kS, kD}, at::kFloat);
  const auto wide = foreign({kD}, at::kDouble);
  const auto has_norm = [&](const Tensors& values, const Tensors& rows) {
    return devices::has(devices::norm_forward(), values, rows);
  };
  CHECK(has_norm({x}, {at::Tensor()}));
  CHECK_FALSE(has_norm({x}, {wide}));
  CHECK_FALSE(has_norm({wide}, {}));
  CHECK_FALSE(has_norm({x, foreign({kB, kS, kD}, at::kHalf)}, {}));
  CHECK_FALSE(has_norm({x}, {at::zeros({kD})}));
  CHECK_FALSE(devices::has(devices::rms_forward(), x, {}));
}
