// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include <ATen/ATen.h>

#include "core/base/error.hpp"
#include "core/role/init.hpp"
#include "core/role/layout.hpp"

#include <doctest/doctest.h>

using namespace limbeck;

namespace {

// Two units: the root with a weight and a bias, a block with a matrix, a norm and a buffer.
RoleLayout declared() {
  RoleLayout layout;
  layout.parts = {{"", LB_ROOT}};
  layout.units.resize(2);
  layout.units[1].name = "blocks.0";
  const auto add = [&](lb_unit unit, const char* name, std::vector<int64_t> shape, uint32_t flags) {
    ParamLayout param;
    param.name = name;
    param.key = unit == 0 ? name : std::string("blocks.0.") + name;
    param.numel = 1;
    for (const int64_t size : shape) {
      param.numel *= size;
    }
    param.shape = std::move(shape);
    param.flags = flags;
    param.unit = unit;
    layout.units[unit].params.push_back(layout.params.size());
    layout.params.push_back(param);
  };
  add(0, "weight", {3, 5}, 0);
  add(0, "bias", {3}, LB_PARAM_NO_DECAY);
  add(1, "matrix", {4, 4}, LB_PARAM_LINEAR);
  add(1, "norm", {7}, LB_PARAM_NO_DECAY | LB_PARAM_KEEP_F32);
  add(1, "table", {2}, LB_PARAM_BUFFER);
  return layout;
}

LayoutOptions trained(bool decays_flagged) {
  LayoutOptions options;
  options.is_trained = true;
  options.decays_flagged = decays_flagged;
  return options;
}

}  // namespace

TEST_CASE("layout: parameters start on multiples of 16 and do not overlap") {
  auto layout = declared();
  place_params(layout, trained(true));

  CHECK(layout.find("weight")->offset == 0);
  CHECK(layout.find("bias")->offset == 16);
  CHECK(layout.find("blocks.0.matrix")->offset == 32);
  CHECK(layout.find("blocks.0.norm")->offset == 48);
  CHECK(layout.trained_size == 64);
  CHECK(layout.find("blocks.0.table")->store == Store::kBuffer);
  CHECK(layout.parameter_count() == 15 + 3 + 16 + 7);
  CHECK(layout.find("nothing") == nullptr);
}

TEST_CASE("layout: parameters without decay get a range of their own") {
  auto layout = declared();
  place_params(layout, trained(false));

  REQUIRE(layout.trained.size() == 2);
  CHECK(layout.trained[0].is_decayed);
  CHECK(layout.trained[0].size == 32);
  CHECK(!layout.trained[1].is_decayed);
  CHECK(layout.trained[1].offset == 32);
  CHECK(layout.find("bias")->offset == 32);
  CHECK(layout.find("blocks.0.norm")->offset == 48);
}

TEST_CASE("layout: ranges end at a multiple of the shard count") {
  auto layout = declared();
  auto options = trained(true);
  options.mesh.shard = 24;
  place_params(layout, options);

  CHECK(layout.trained_size % 24 == 0);
  CHECK(layout.trained_size >= 64);
}

TEST_CASE("layout: a frozen 16-bit role keeps asked-for parameters wide") {
  auto layout = declared();
  LayoutOptions options;
  options.is_16_bit = true;
  place_params(layout, options);

  CHECK(layout.trained.empty());
  CHECK(layout.find("weight")->store == Store::kFrozen);
  CHECK(layout.find("blocks.0.norm")->store == Store::kFrozenWide);
  CHECK(layout.frozen_wide_size == 16);
}

TEST_CASE("layout: a key that is declared twice is refused") {
  auto layout = declared();
  layout.params[1].key = "weight";
  CHECK_THROWS_AS(place_params(layout, trained(true)), Error);
}

TEST_CASE("init: expressions") {
  auto out = at::empty({300, 200});
  init_param(out, "zeros", 1);
  CHECK(out.abs().max().item<float>() == 0.0F);
  init_param(out, "ones", 1);
  CHECK(out.min().item<float>() == 1.0F);
  init_param(out, "constant(-0.5)", 1);
  CHECK(out.max().item<float>() == -0.5F);

  init_param(out, "normal(1, 0.02)", 1);
  CHECK(std::abs(out.mean().item<double>() - 1.0) < 5e-4);
  CHECK(std::abs(out.std().item<double>() - 0.02) < 5e-4);

  init_param(out, "xavier_uniform", 1);
  const double xavier = std::sqrt(6.0 / 500.0);
  CHECK(out.abs().max().item<double>() <= xavier);
  CHECK(out.abs().max().item<double>() > 0.99 * xavier);

  init_param(out, "kaiming_uniform", 1);
  const double kaiming = std::sqrt(1.0 / 200.0);
  CHECK(out.abs().max().item<double>() <= kaiming);
  CHECK(out.abs().max().item<double>() > 0.99 * kaiming);

  init_param(out, "uniform(2, 3)", 1);
  CHECK(out.min().item<double>() >= 2.0);
  CHECK(out.max().item<double>() < 3.0);
}

TEST_CASE("init: a convolution counts as the matrix it is applied as") {
  auto flat = at::empty({96, 16});
  auto conv = at::empty({96, 4, 1, 2, 2});
  init_param(flat, "xavier_uniform", 3);
  init_param(conv, "xavier_uniform", 3);
  CHECK(at::equal(flat.view(-1), conv.view(-1)));
}

TEST_CASE("init: the seed decides the numbers") {
  auto a = at::empty({8});
  auto b = at::empty({8});
  init_param(a, "normal(0, 1)", 1);
  init_param(b, "normal(0, 1)", 1);
  CHECK(at::equal(a, b));
  init_param(b, "normal(0, 1)", 2);
  CHECK(!at::equal(a, b));
}

TEST_CASE("init: what cannot be read is refused") {
  auto out = at::empty({4});
  for (const char* text : {"", "zero", "normal", "normal(1)", "normal(0, x)", "normal(0, 1",
                           "xavier_uniform", "ones()1"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(init_param(out, text, 0), Error);
  }
}
