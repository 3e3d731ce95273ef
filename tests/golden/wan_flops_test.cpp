// SPDX-License-Identifier: Apache-2.0
// What a forward costs, against counts of FastVideo's estimator.
#include "wan/flops.hpp"

#include <doctest/doctest.h>

TEST_CASE("wan flops: a tiny network") {
  // Two samples of latents [4, 4, 4] in patches of [1, 2, 2], 3 text tokens.
  wan::WorkSizes sizes = {2, 4, 4, 3, 8, 16, 2};
  CHECK(wan::forward_flops(sizes) == 123904);
  // Each size counts.
  const auto with = [&](int64_t wan::WorkSizes::*member, int64_t value) {
    auto other = sizes;
    other.*member = value;
    return wan::forward_flops(other);
  };
  CHECK(with(&wan::WorkSizes::samples, 1) == 61952);
  CHECK(with(&wan::WorkSizes::layers, 1) == 61952);
  CHECK(with(&wan::WorkSizes::context, 0) == 123904 - 2 * 2 * (4 * 3 * 64 + 4 * 16 * 3 * 8));
  CHECK(with(&wan::WorkSizes::ffn, 0) == 123904 - 2 * 2 * 4 * 16 * 8 * 16);
  CHECK(with(&wan::WorkSizes::frames, 2) != 61952);  // attention is quadratic
  CHECK(with(&wan::WorkSizes::per_frame, 8) == with(&wan::WorkSizes::frames, 8));
}

TEST_CASE("wan flops: Wan 2.1 1.3B, 77 frames of 448 x 832") {
  CHECK(wan::forward_flops({1, 20, 28 * 52, 512, 1536, 8960, 30}) ==
        doctest::Approx(232.01656602624e12).epsilon(1e-13));
}
