// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/base/error.hpp"
#include "core/exec/forward.hpp"
#include "core/exec/models.hpp"
#include "core/plugin/status.hpp"
#include "toy_network.hpp"

#include <doctest/doctest.h>

using namespace limbeck;
using limbeck::testing::live_bodies;
using limbeck::testing::take_body_runs;
using limbeck::testing::toy_spec;

namespace {

std::unique_ptr<Role> make_role(RoleSpec spec) {
  auto role = std::make_unique<Role>(spec, Mesh());
  role->allocate();
  return role;
}

lb_batch input() {
  lb_batch in;
  in.put("x", at::sin(at::arange(12, at::kFloat)).view({3, 4}));
  return in;
}

at::Tensor run(Role& role, uint32_t flags, const lb_batch& in) {
  lb_batch out;
  run_forward(role, flags, in, out);
  return out.tensor("y");
}

// The flat gradient of sum(y^2) after `forwards` forwards before one backward.
at::Tensor gradient(Recompute policy, int forwards, Precision precision = Precision::kFloat32) {
  auto spec = toy_spec(true);
  spec.recompute = policy;
  spec.dtype = precision;
  const auto role = make_role(spec);
  at::Tensor loss = at::zeros({});
  auto in = input();
  in.put("x", in.tensor("x").to(role->compute_type()));
  for (int i = 0; i < forwards; ++i) {
    loss = loss + run(*role, 0, in).to(at::kDouble).square().sum();
    in.put("x", in.tensor("x") * 0.5);
  }
  torch::autograd::backward({loss}, {}, std::nullopt, false, role->leaves());
  return role->grad().clone();
}

std::string failure(const RoleSpec& spec, uint32_t flags = 0) {
  const auto role = make_role(spec);
  try {
    run(*role, flags, input());
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("forward: a trained role records history, its gradient lands in the flat buffer") {
  const auto role = make_role(toy_spec(true));
  const auto in = input();
  const auto y = run(*role, 0, in);
  REQUIRE(y.requires_grad());
  torch::autograd::backward({y.square().sum()}, {}, std::nullopt, false, role->leaves());

  // The same by hand.
  std::vector<at::Tensor> weights;
  role->visit(Weights::kLive, [&](const std::string&, const at::Tensor& value) {
    weights.push_back(value.clone().set_requires_grad(true));
  });
  const auto hidden = at::gelu(at::linear(in.tensor("x"), weights[0], weights[1]));
  at::linear(hidden, weights[2]).square().sum().backward();
  const auto got = role->grad();
  CHECK(at::allclose(got.narrow(0, 0, 16).view({4, 4}), weights[0].grad(), 1e-5, 1e-7));
  CHECK(at::allclose(got.narrow(0, 16, 4), weights[1].grad(), 1e-5, 1e-7));
  CHECK(at::allclose(got.narrow(0, 32, 16).view({4, 4}), weights[2].grad(), 1e-5, 1e-7));
  CHECK(role->is_touched());
}

TEST_CASE("forward: full recompute gives the bits of keep, and runs each body once more") {
  take_body_runs();
  const auto keep = gradient(Recompute::kKeep, 1);
  CHECK(take_body_runs() == 2);
  const auto full = gradient(Recompute::kFull, 1);
  CHECK(take_body_runs() == 4);

  CHECK(at::equal(keep, full));
  CHECK(keep.abs().max().item<float>() > 0.01F);
}

TEST_CASE("forward: several forwards before one backward differ in the order of sums only") {
  const auto keep = gradient(Recompute::kKeep, 3);
  const auto full = gradient(Recompute::kFull, 3);
  CHECK(at::allclose(keep, full, 1e-5, 1e-6));
  CHECK(!at::allclose(keep, gradient(Recompute::kKeep, 2), 1e-3, 1e-3));
}

TEST_CASE("forward: bodies are released, with and without backward") {
  gradient(Recompute::kKeep, 1);
  gradient(Recompute::kFull, 2);
  CHECK(live_bodies() == 0);
  {
    auto spec = toy_spec(true);
    spec.recompute = Recompute::kFull;
    const auto role = make_role(spec);
    run(*role, 0, input());
  }
  CHECK(live_bodies() == 0);
}

TEST_CASE("forward: a frozen role and quiet flags record nothing") {
  const auto frozen = make_role(toy_spec(false));
  CHECK(!run(*frozen, 0, input()).requires_grad());
  CHECK(frozen->leaves().empty());
  CHECK(frozen->grad().numel() == 0);

  const auto trained = make_role(toy_spec(true));
  CHECK(!run(*trained, LB_RUN_NO_GRAD, input()).requires_grad());
  const at::NoGradGuard no_grad;
  CHECK(!run(*trained, 0, input()).requires_grad());
}

TEST_CASE("forward: a shadow role has master weights like the role it averages, and no gradient") {
  auto spec = toy_spec(false);
  spec.is_shadow = true;
  const auto shadow = make_role(spec);
  const auto trained = make_role(toy_spec(true));

  CHECK(shadow->master().numel() == trained->master().numel());
  CHECK(at::equal(shadow->master(), trained->master()));
  CHECK(shadow->grad().numel() == 0);
  CHECK(!run(*shadow, 0, input()).requires_grad());
  // Averaging moves what the next forward sees.
  const auto before = run(*shadow, 0, input());
  {
    const at::NoGradGuard no_grad;
    shadow->master().lerp_(trained->master() * 2, 0.5);
  }
  CHECK(!at::equal(run(*shadow, 0, input()), before));
}

TEST_CASE("forward: a round begins with a zero gradient, whatever was accumulated before") {
  const auto role = make_role(toy_spec(true));
  const auto backward = [&](double factor) {
    const auto loss = run(*role, 0, input()).square().sum() * factor;
    torch::autograd::backward({loss}, {}, std::nullopt, false, role->leaves());
  };
  backward(1.0);
  const auto once = role->grad().clone();
  backward(1.0);
  CHECK(at::allclose(role->grad(), once * 2, 1e-6, 1e-7));

  role->clear_grad();
  CHECK(!role->is_touched());
  backward(1.0);
  CHECK(at::equal(role->grad(), once));
  role->clear_grad();
  role->settle_grad();
  CHECK(role->grad().abs().max().item<float>() == 0.0F);
}

TEST_CASE("forward: INPUT_GRAD reaches the input and no weight") {
  for (const auto policy : {Recompute::kKeep, Recompute::kFull}) {
    auto spec = toy_spec(true);
    spec.recompute = policy;
    const auto role = make_role(spec);
    auto in = input();
    const auto x = in.tensor("x").clone().set_requires_grad(true);
    in.put("x", x);
    run(*role, LB_RUN_INPUT_GRAD, in).square().sum().backward();

    CHECK(x.grad().abs().max().item<float>() > 0.0F);
    CHECK(role->grad().abs().max().item<float>() == 0.0F);
    CHECK(!role->is_touched());
  }
}

TEST_CASE("forward: averaged weights are those of the average") {
  auto spec = toy_spec(true);
  spec.ema = EmaSpec{};
  const auto role = make_role(spec);
  const auto live = run(*role, LB_RUN_NO_GRAD, input());
  CHECK(at::equal(run(*role, LB_RUN_AVERAGED, input()), live));
  {
    const at::NoGradGuard no_grad;
    role->average().mul_(0.5);
  }
  CHECK(!at::equal(run(*role, LB_RUN_AVERAGED, input()), live));
  CHECK(at::equal(run(*role, LB_RUN_NO_GRAD, input()), live));
}

TEST_CASE("forward: a role in double precision computes in it") {
  const auto grad = gradient(Recompute::kKeep, 1, Precision::kFloat64);
  CHECK((grad.scalar_type() == at::kDouble));
  CHECK(at::allclose(grad, gradient(Recompute::kKeep, 1).to(at::kDouble), 1e-4, 1e-5));
}

TEST_CASE("forward: a bf16 role has fp32 master weights and gradients when trained") {
  auto spec = toy_spec(true);
  spec.dtype = Precision::kBFloat16;
  spec.compute_dtype = Precision::kBFloat16;
  const auto role = make_role(spec);
  lb_batch in;
  in.put("x", input().tensor("x").to(at::kBFloat16));
  const auto y = run(*role, 0, in);
  CHECK((y.scalar_type() == at::kBFloat16));
  torch::autograd::backward({y.to(at::kFloat).square().sum()}, {}, std::nullopt, false,
                            role->leaves());
  CHECK((role->master().scalar_type() == at::kFloat));
  CHECK(at::allclose(role->grad(), gradient(Recompute::kKeep, 1), 0.05, 0.05));
}

TEST_CASE("forward: bf16 is computed in fp32 on a CPU without native products") {
  auto spec = toy_spec(false);
  spec.dtype = Precision::kBFloat16;
  CHECK((compute_type_of(spec, false) == at::kFloat));
  CHECK((compute_type_of(spec, true) == at::kBFloat16));
  spec.compute_dtype = Precision::kBFloat16;
  CHECK((compute_type_of(spec, false) == at::kBFloat16));
}

TEST_CASE("forward: what a body must not do is an error that names the unit") {
  testing::ToyOptions writes;
  writes.writes_input = true;
  CHECK(failure(toy_spec(false, writes)).find("unit 'second' changed an input in place") !=
        std::string::npos);

  testing::ToyOptions nests;
  nests.nests = true;
  CHECK(failure(toy_spec(true, nests)).find("units do not nest") != std::string::npos);
  CHECK(live_bodies() == 0);
}

TEST_CASE("forward: flags and weights that a role does not have are errors") {
  CHECK(failure(toy_spec(true), LB_RUN_AVERAGED).find("has none") != std::string::npos);
  CHECK(failure(toy_spec(true), 1U << 30).find("run flags") != std::string::npos);
}

TEST_CASE("models: a component reaches the roles of its own table") {
  const auto role = make_role(toy_spec(false));
  const Models models({role.get(), nullptr});
  const auto& table = models.table();

  CHECK(table.n_roles == 2);
  CHECK(table.has(&table, 0, nullptr) == 1);
  CHECK(table.has(&table, 0, "test.toy/1") == 1);
  CHECK(table.has(&table, 0, "limbeck.averaged/1") == 0);
  CHECK(table.has(&table, 1, nullptr) == 0);
  CHECK(table.facts(&table, 0)->number("width", 0) == 4.0);
  CHECK(table.facts(&table, 1) == nullptr);

  const auto in = input();
  lb_batch out;
  check(table.run(&table, 0, 0, &in, &out));
  CHECK(out.tensor("y").size(0) == 3);
  for (const uint32_t missing : {1U, 7U}) {
    auto* status = table.run(&table, missing, 0, &in, &out);
    CHECK(status != nullptr);
    drop_status(status);
  }
}
