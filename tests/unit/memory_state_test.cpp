// SPDX-License-Identifier: Apache-2.0
#include "core/train/memory_state.hpp"

#include <doctest/doctest.h>

using limbeck::MemoryState;

TEST_CASE("memory state: states differ in the first name whose bits differ") {
  const auto difference = [](const at::Tensor& a, const at::Tensor& b) {
    MemoryState one;
    MemoryState other;
    one.put("a.same", int64_t{1});
    other.put("a.same", int64_t{1});
    one.put("b.tensor", a);
    other.put("b.tensor", b);
    return one.difference(other);
  };
  const auto some = at::arange(3, at::kFloat);
  CHECK(difference(some, some.clone()).empty());
  CHECK(difference(some, some + 1e-7) == "b.tensor");
  CHECK(difference(some, some.to(at::kDouble)) == "b.tensor");
  CHECK(difference(some, some.view({3, 1})) == "b.tensor");
  // Of no elements: nothing to compare, and no address to compare it at.
  CHECK(difference(at::empty({0, 2}), at::empty({0, 2})).empty());
  CHECK(difference(at::empty({0, 2}), at::empty({2, 0})) == "b.tensor");
}

TEST_CASE("memory state: a name that only one state has is a difference") {
  MemoryState one;
  MemoryState other;
  other.put("extra", 0.5);
  CHECK(one.difference(other) == "extra");
  CHECK(other.difference(one) == "extra");
  one.put("extra", int64_t{0});
  CHECK(one.difference(other) == "extra");
}
