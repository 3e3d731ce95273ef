// SPDX-License-Identifier: Apache-2.0
// What a role that is not trained has no memory for.
#include <ATen/ATen.h>

#include "core/role/role.hpp"
#include "toy_network.hpp"

#include <doctest/doctest.h>

TEST_CASE("role: a frozen one has neither gradients, master weights nor leaves") {
  for (const bool is_trained : {false, true}) {
    limbeck::Role role(limbeck::testing::toy_spec(is_trained), limbeck::Mesh{});
    role.allocate();
    CAPTURE(is_trained);
    CHECK((role.grad().numel() > 0) == is_trained);
    CHECK((role.master().numel() > 0) == is_trained);
    CHECK(role.leaves().empty() == !is_trained);
  }
}
