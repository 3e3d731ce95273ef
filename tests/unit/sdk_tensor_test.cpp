// SPDX-License-Identifier: Apache-2.0
// lb::Tensor and lb::Batch on the host's own services, against ATen; and the tensor side of the
// diffusion library against its scalar side.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <limbeck/batch.hpp>
#include <limbeck/diffusion/convert.hpp>
#include <limbeck/diffusion/density.hpp>
#include <limbeck/diffusion/guidance.hpp>
#include <limbeck/diffusion/loss_weight.hpp>
#include <limbeck/diffusion/sampler.hpp>
#include <limbeck/diffusion/schedule.hpp>
#include <limbeck/fused.hpp>
#include <limbeck/tensor.hpp>

#include "core/ops/fused.hpp"
#include "core/plugin/host_table.hpp"
#include "core/tensor/batch.hpp"
#include "core/tensor/handle.hpp"
#include "core/tensor/tensor_api.hpp"

#include <doctest/doctest.h>

namespace {

void bind_services() {
  limbeck::provide("limbeck.tensor/1", &limbeck::tensor_api());
  limbeck::provide("limbeck.dispatch/1", &limbeck::dispatch_api());
  limbeck::provide("limbeck.batch/1", &limbeck::batch_api());
  REQUIRE(lb::bind(&limbeck::host_table()) == nullptr);
}

const at::Tensor& of(const lb::Tensor& tensor) { return limbeck::tensor_of(tensor.raw()); }
lb::Tensor wrap(at::Tensor tensor) { return lb::Tensor::take(limbeck::give(std::move(tensor))); }

bool same(const lb::Tensor& got, const at::Tensor& expected) {
  return of(got).scalar_type() == expected.scalar_type() && of(got).equal(expected);
}

// Numbers of (0, 1) that are all different.
at::Tensor numbers(at::IntArrayRef sizes, double phase = 0.0) {
  const auto count = c10::multiply_integers(sizes);
  return (at::sin(at::arange(count, at::kFloat) * 1.7 + phase) * 0.45 + 0.5).view(sizes);
}

}  // namespace

TEST_CASE("arithmetic and elementwise functions are those of ATen") {
  bind_services();
  const auto a = numbers({2, 3});
  const auto b = numbers({3}, 1.0);
  const auto x = wrap(a);
  const auto y = wrap(b);
  CHECK(same(x + y, a + b));
  CHECK(same(x - y, a - b));
  CHECK(same(x * y, a * b));
  CHECK(same(x / y, a / b));
  CHECK(same(x + 0.5, a + 0.5));
  CHECK(same(2 + x, a + 2));
  CHECK(same(x - 0.5, a - 0.5));
  CHECK(same(2.0 - x, at::rsub(a, 2.0)));
  CHECK(same(x * 3, a * 3));
  CHECK(same(0.1 * x, a * 0.1));
  CHECK(same(x / 4.0, a / 4.0));
  CHECK(same(4.0 / x, a.reciprocal() * 4.0));
  CHECK(same(-x, -a));
  CHECK(same(lb::add_scaled(x, y, 0.25), at::add(a, b, 0.25)));
  CHECK(same(lb::addcmul(x, x, y, 2), at::addcmul(a, a, b, 2)));
  CHECK(same(lb::maximum(x, y), at::maximum(a, b)));
  CHECK(same(lb::minimum(x, y), at::minimum(a, b)));
  CHECK(same(x.exp(), a.exp()));
  CHECK(same(x.log(), a.log()));
  CHECK(same(x.sqrt(), a.sqrt()));
  CHECK(same(x.rsqrt(), a.rsqrt()));
  CHECK(same(x.square(), a.square()));
  CHECK(same(x.pow(1.5), a.pow(1.5)));
  CHECK(same((x - 0.5).abs(), (a - 0.5).abs()));
  CHECK(same((x - 0.5).sign(), (a - 0.5).sign()));
  CHECK(same(x.sin(), a.sin()));
  CHECK(same(x.cos(), a.cos()));
  CHECK(same(x.tanh(), a.tanh()));
  CHECK(same(x.sigmoid(), a.sigmoid()));
  CHECK(same((x * 7).round(), (a * 7).round()));
  CHECK(same((x * 7).floor(), (a * 7).floor()));
  CHECK(same(x.clamp(0.2, 0.6), a.clamp(0.2, 0.6)));
  CHECK(same(x.isfinite(), a.isfinite()));
  CHECK_FALSE(same(x + y, a + b + 1e-6));
  CHECK_FALSE(same(x.le(0.5), a.le(0.5).to(at::kFloat)));
}

TEST_CASE("comparisons and reductions are those of ATen") {
  bind_services();
  const auto a = numbers({2, 3});
  const auto b = numbers({2, 3}, 1.0);
  const auto x = wrap(a);
  const auto y = wrap(b);
  CHECK(same(x.le(y), a.le(b)));
  CHECK(same(x.lt(0.5), a.lt(0.5)));
  CHECK(same(x.ge(0.5), a.ge(0.5)));
  CHECK(same(x.gt(y), a.gt(b)));
  CHECK(same(x.eq(x), a.eq(a)));
  CHECK(same(x.ne(0.5), a.ne(0.5)));
  CHECK(same(lb::logical_and(x.lt(0.5), y.lt(0.5)), a.lt(0.5).logical_and(b.lt(0.5))));
  CHECK(same(x.lt(0.5).logical_not(), a.lt(0.5).logical_not()));
  CHECK(same(lb::where(x.lt(0.5), x, y), at::where(a.lt(0.5), a, b)));
  CHECK(same(x.sum(), a.sum()));
  CHECK(same(x.sum({1}, true), a.sum(at::IntArrayRef({1}), true)));
  CHECK(same(x.mean(), a.mean()));
  CHECK(same(x.mean({0, -1}), a.mean(at::IntArrayRef({0, -1}))));
  CHECK(same(x.max(), a.max()));
  CHECK(same(x.min(), a.min()));
  CHECK(same(x.lt(2).all(), a.lt(2).all()));
  CHECK(same(x.lt(0.1).any(), a.lt(0.1).any()));
  CHECK(same(x.argmax(1), a.argmax(1)));
  CHECK(same(x.cumsum(1), a.cumsum(1)));
}

TEST_CASE("shapes and parts are those of ATen") {
  bind_services();
  const auto a = numbers({2, 3, 4});
  const auto x = wrap(a);
  CHECK(x.dim() == 3);
  CHECK(x.size(-1) == 4);
  CHECK(x.sizes() == std::vector<int64_t>{2, 3, 4});
  CHECK(x.numel() == 24);
  CHECK(x.shape() == "[2, 3, 4]");
  CHECK(same(x.view({6, -1}), a.view({6, -1})));
  CHECK(same(x.reshape({4, 6}), a.reshape({4, 6})));
  CHECK(same(x.unsqueeze(0).expand({5, 2, 3, 4}), a.expand({5, 2, 3, 4})));
  CHECK(same(x.permute({2, 0, 1}), a.permute({2, 0, 1})));
  CHECK(same(x.transpose(0, -1), a.transpose(0, -1)));
  CHECK(same(x.flatten(), a.flatten()));
  CHECK(same(x.flatten(1, 2), a.flatten(1, 2)));
  CHECK(same(x.unflatten(-1, {2, -1}), a.view({2, 3, 2, 2})));
  CHECK(same(x.unsqueeze(1).squeeze(1), a));
  CHECK(same(x.narrow(2, 1, 2), a.narrow(2, 1, 2)));
  CHECK(same(x.select(1, 2), a.select(1, 2)));
  CHECK(same(x.flip({0, 2}), a.flip({0, 2})));
  CHECK(same(x.roll(1, 2), a.roll(1, 2)));
  CHECK(same(x.repeat_interleave(3, 1), a.repeat_interleave(3, 1)));
  const auto index = lb::tensor<int64_t>({2, 0}, {2});
  CHECK(same(x.index_select(1, index), a.index_select(1, at::tensor({2, 0}))));
  const auto places = a.argmax(2, true);
  CHECK(same(x.gather(2, wrap(places)), a.gather(2, places)));
  CHECK(same(x.transpose(0, 1).contiguous(), a.transpose(0, 1)));
  CHECK(same(lb::cat({x, x}, 1), at::cat({a, a}, 1)));
  CHECK(same(lb::stack({x, x}, 0), at::stack({a, a}, 0)));
  const auto chunks = x.chunk(2, -1);
  REQUIRE(chunks.size() == 2);
  CHECK(same(chunks[1], a.chunk(2, -1)[1]));
  const auto uneven = x.chunk(2, 1);
  REQUIRE(uneven.size() == 2);
  CHECK(same(uneven[0], a.chunk(2, 1)[0]));
  const auto slices = x.unbind(1);
  REQUIRE(slices.size() == 3);
  CHECK(same(slices[2], a.select(1, 2)));
  CHECK_THROWS_WITH_AS(x.size(3), doctest::Contains("dimension 3 of a tensor with 3"), lb::Error);
}

TEST_CASE("fused operators are those of the host") {
  bind_services();
  const auto x = numbers({2, 6, 8});
  const auto y = numbers({2, 6, 8}, 0.4);
  const auto shift = numbers({2, 8}, 0.1);
  const auto scale = numbers({2, 8}, 0.2);
  const auto gate = numbers({2, 8}, 0.3);
  const auto table = numbers({6, 2, 2}, 0.5);
  CHECK(same(lb::modulated_norm(wrap(x), wrap(shift), wrap(scale), 1e-6),
             limbeck::modulated_norm(x, shift, scale, 1e-6)));
  CHECK(
      same(lb::gated_residual(wrap(x), wrap(y), wrap(gate)), limbeck::gated_residual(x, y, gate)));
  for (const bool plus_one : {true, false}) {
    const auto [z, u] =
        lb::residual_norm(wrap(x), wrap(y), {}, wrap(shift), wrap(scale), plus_one, 1e-6);
    const auto [expected_z, expected_u] =
        limbeck::residual_norm(x, y, std::nullopt, shift, scale, plus_one, 1e-6);
    CHECK(same(z, expected_z));
    CHECK(same(u, expected_u));
  }
  CHECK(same(lb::rms_norm_rope(wrap(x), wrap(numbers({8})), wrap(table), 2, 1e-6),
             limbeck::rms_norm_rope(x, numbers({8}), table, 2, 1e-6)));
}

TEST_CASE("layers are those of ATen") {
  bind_services();
  const auto a = numbers({2, 3, 4});
  const auto w = numbers({5, 4}, 0.3);
  const auto bias = numbers({5}, 0.7);
  const auto gain = numbers({4}, 0.9);
  const auto x = wrap(a);
  CHECK(same(lb::matmul(x, wrap(w.t())), at::matmul(a, w.t())));
  CHECK(same(lb::linear(x, wrap(w), wrap(bias)), at::linear(a, w, bias)));
  CHECK(same(lb::linear(x, wrap(w)), at::linear(a, w)));
  CHECK(same(lb::layer_norm(x, {4}, wrap(gain), {}, 1e-6), at::layer_norm(a, {4}, gain, {}, 1e-6)));
  CHECK(same(lb::rms_norm(x, {4}, wrap(gain), 1e-6), at::rms_norm(a, {4}, gain, 1e-6)));
  CHECK(same(lb::silu(x), at::silu(a)));
  CHECK(same(lb::relu(x - 0.5), at::relu(a - 0.5)));
  CHECK(same(lb::gelu(x), at::gelu(a)));
  CHECK(at::allclose(of(lb::gelu_tanh(x)), at::gelu(a, "tanh"), 1e-6, 1e-7));
  CHECK(same(lb::softmax(x, -1), at::softmax(a, -1)));
  CHECK(same(lb::log_softmax(x, 1), at::log_softmax(a, 1)));
  CHECK(same(lb::mse_loss(x, x * 0.5), at::mse_loss(a, a * 0.5)));
  const auto logits = numbers({6, 4});
  const auto labels = at::tensor({0, 1, 2, 3, 0, 1});
  CHECK(same(lb::cross_entropy(wrap(logits), wrap(labels.to(at::kLong)), 0.1),
             at::cross_entropy_loss(logits, labels.to(at::kLong), {}, 1, -100, 0.1)));
  const auto image = numbers({1, 2, 5, 5});
  const auto kernel = numbers({3, 2, 3, 3}, 0.2);
  CHECK(same(lb::conv2d(wrap(image), wrap(kernel), {}, {2, 2}, {1, 1}),
             at::conv2d(image, kernel, {}, {2, 2}, {1, 1})));
  CHECK(same(lb::call("aten::erf", "", {x}), at::erf(a)));
}

TEST_CASE("new tensors have the asked type, shape and values") {
  bind_services();
  CHECK(same(lb::zeros({2, 2}), at::zeros({2, 2})));
  CHECK(same(lb::ones({2}, LB_F64), at::ones({2}, at::kDouble)));
  CHECK(same(lb::full({2}, 3, LB_I64), at::full({2}, 3, at::kLong)));
  CHECK(same(lb::full({2}, 0.5), at::full({2}, 0.5, at::kFloat)));
  CHECK(same(lb::arange(4), at::arange(4, at::kFloat)));
  CHECK(same(lb::arange(4, LB_I64), at::arange(4, at::kLong)));
  CHECK(same(lb::zeros_like(lb::ones({3})), at::zeros({3})));
  CHECK(same(lb::ones_like(lb::zeros({3}, LB_F64)), at::ones({3}, at::kDouble)));
  const auto x = lb::tensor<double>({1, 2, 3}, {3}, LB_CPU);
  CHECK(x.dtype() == LB_F64);
  CHECK(x.to_vector<float>() == std::vector<float>{1, 2, 3});
  CHECK(x.to_vector<int64_t>() == std::vector<int64_t>{1, 2, 3});
  CHECK(x.sum().item() == 6.0);
  CHECK(same(x.to_place(LB_CPU), of(x)));
  CHECK_THROWS_AS(lb::tensor<float>({1, 2}, {3}), lb::Error);
  CHECK_THROWS_WITH_AS(x.item(), doctest::Contains("[3]"), lb::Error);
}

TEST_CASE("copies share elements, integers stay integers, a cast to the own type is free") {
  bind_services();
  auto x = lb::tensor<int64_t>({1, 2}, {2});
  const auto copy = x;
  CHECK(of(copy).is_same(of(x)));
  CHECK(of(x.to(LB_I64)).is_same(of(x)));
  CHECK((x + 1).dtype() == LB_I64);
  CHECK((x * 0.5).dtype() == LB_F32);
  const auto moved = std::move(x);
  CHECK_FALSE(x.defined());  // NOLINT(bugprone-use-after-move)
  CHECK(moved.defined());
  CHECK_THROWS_AS(x + 1, lb::Error);
  CHECK_THROWS_WITH_AS(x.sizes(), doctest::Contains("undefined"), lb::Error);
  CHECK_THROWS_AS(lb::matmul(moved, lb::ones({3, 3})), lb::StatusError);
}

TEST_CASE("gradients reach leaves, and functions of one's own take part") {
  bind_services();
  const auto leaf = wrap(numbers({3}).requires_grad_(true));
  CHECK(leaf.requires_grad());
  CHECK_FALSE(leaf.detach().requires_grad());
  const auto other = wrap(numbers({3}).requires_grad_(true));
  const auto y = (leaf.square() * 3).sum();
  const auto grads = lb::gradient({y}, {lb::ones_like(y)}, {leaf, other});
  CHECK(of(grads[0]).allclose(6 * of(leaf)));
  CHECK_FALSE(grads[1].defined());
  {
    const lb::NoGrad off;
    CHECK_FALSE((leaf * 2).requires_grad());
  }
  CHECK((leaf * 2).requires_grad());

  // x -> x^2 with the gradient of something else, so that it is seen which one is used.
  const lb::Differentiable odd = {
      [](const std::vector<lb::Tensor>& in) { return std::vector<lb::Tensor>{in[0] * in[0]}; },
      [](const std::vector<lb::Tensor>& in, const std::vector<lb::Tensor>& grad_out) {
        return std::vector<lb::Tensor>{grad_out[0] * in[0] * 5};
      }};
  const auto z = lb::apply(odd, {leaf}, 1)[0];
  CHECK(of(z).allclose(of(leaf).square()));
  const auto own = lb::gradient({z}, {lb::ones_like(z)}, {leaf})[0];
  CHECK(of(own).allclose(5 * of(leaf)));
  CHECK_FALSE(of(own).allclose(2 * of(leaf)));
}

TEST_CASE("a batch keeps tensors, numbers, texts and batches by name") {
  bind_services();
  lb::Batch batch;
  batch.set("x", lb::ones({2})).set("scale", 3).set("caption", "one");
  batch.set("names", std::vector<std::string>{"a", "b"});
  batch.set("inner", lb::Batch().set("y", lb::zeros({1})));
  CHECK(batch.names() == std::vector<std::string>{"caption", "inner", "names", "scale", "x"});
  CHECK(batch["x"].sum().item() == 2.0);
  CHECK(batch.number("scale") == 3.0);
  CHECK(batch.number("other", 7.0) == 7.0);
  CHECK(batch.text("caption") == "one");
  CHECK(batch.rows("names") == 2);
  CHECK(batch.texts("names")[1] == "b");
  CHECK(batch.batch("inner")["y"].numel() == 1);
  CHECK(batch.has_text("names"));
  CHECK_FALSE(batch.has_text("x"));
  CHECK_FALSE(batch.find("nothing").defined());
  CHECK_THROWS_WITH_AS(batch["y"], doctest::Contains("it has caption, inner, names"), lb::Error);
  CHECK_THROWS_AS(batch.number("x"), lb::Error);
  CHECK_THROWS_AS(batch.set("z", lb::Tensor()), lb::Error);

  auto copy = batch.copy();
  copy.drop("x").set("scale", 4);
  CHECK(batch.has("x"));
  CHECK(batch.number("scale") == 3.0);
  CHECK(copy.number("scale") == 4.0);
  batch.set("names", std::vector<std::string>{"c"});
  CHECK(batch.rows("names") == 1);

  auto view = lb::Batch::view(copy.raw());
  view.set("w", 1);
  CHECK(copy.has("w"));
  const auto nothing = lb::Batch::view(nullptr);
  CHECK_FALSE(nothing.has("x"));
  CHECK(nothing.names().empty());
}

TEST_CASE("formulas of the diffusion library agree between tensors and numbers") {
  bind_services();
  namespace diffusion = lb::diffusion;
  const std::vector<double> levels = {0.01, 0.3, 0.62, 0.99};
  const auto tensor = lb::tensor(levels, {4});
  const auto agrees = [&](const lb::Tensor& got, const std::function<double(double)>& formula) {
    const auto values = got.to_vector<double>();
    for (size_t i = 0; i < levels.size(); ++i) {
      if (std::abs(values[i] - formula(levels[i])) > 1e-12 * (1 + std::abs(values[i]))) {
        return false;
      }
    }
    return true;
  };
  CHECK(agrees(diffusion::shift(tensor, 3), [](double s) { return diffusion::shift(s, 3); }));
  CHECK(agrees(diffusion::unshift(tensor, 3), [](double s) { return diffusion::unshift(s, 3); }));
  CHECK(agrees(diffusion::sigma_of(tensor * 1000), [](double s) { return s; }));
  CHECK(agrees(diffusion::logit_normal(tensor, 0.5, 2),
               [](double z) { return diffusion::logit_normal(z, 0.5, 2); }));
  CHECK(agrees(diffusion::mode(tensor, 1.29), [](double r) { return diffusion::mode(r, 1.29); }));
  CHECK(agrees(diffusion::index_of(tensor), [](double u) { return diffusion::index_of(u); }));
  CHECK(agrees(diffusion::cosmap_weight(tensor),
               [](double s) { return diffusion::cosmap_weight(s); }));
  CHECK(agrees(diffusion::sigma_sqrt_weight(tensor),
               [](double s) { return diffusion::sigma_sqrt_weight(s); }));
  CHECK(agrees(diffusion::guide(tensor, tensor * 2, 3.0), [](double u) { return u + 3 * u; }));
  CHECK(agrees(diffusion::renoise_step(tensor, tensor * 2, 0.5, 0.25, tensor * 0),
               [](double) { return 0.0; }));
  CHECK_FALSE(agrees(diffusion::shift(tensor, 3), [](double s) { return diffusion::shift(s, 2); }));

  const diffusion::Grid grid(5);
  const auto found = grid.sigma_of(lb::tensor<float>({937, 625, 500, 0}, {4})).to_vector<double>();
  for (const auto& [index, timestep] :
       {std::pair<size_t, double>{0, 937}, {1, 625}, {2, 500}, {3, 0}}) {
    CHECK(std::abs(found[index] - grid.sigma_of(timestep)) < 1e-7);
  }

  // Per sample and per frame levels meet a video.
  const auto video = wrap(numbers({2, 3, 4, 5, 6}));
  const auto noise = wrap(numbers({2, 3, 4, 5, 6}, 1.0));
  const auto per_sample = lb::tensor<float>({0.25, 0.75}, {2});
  const auto mixed = diffusion::add_noise(video, noise, diffusion::per_video(per_sample));
  CHECK(of(mixed)[1].allclose(0.25 * of(video)[1] + 0.75 * of(noise)[1]));
  const auto v = diffusion::velocity(video, noise);
  CHECK(of(diffusion::x0_from_velocity(mixed, v, diffusion::per_video(per_sample)))
            .allclose(of(video), 1e-5, 1e-6));
  const auto per_frame = per_sample.unsqueeze(1).expand({2, 4}).contiguous();
  CHECK(of(diffusion::add_noise(video, noise, diffusion::per_video(per_frame))).equal(of(mixed)));
}
