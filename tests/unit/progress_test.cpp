// SPDX-License-Identifier: Apache-2.0
#include "core/train/progress.hpp"

#include <doctest/doctest.h>

using limbeck::progress_text;
using limbeck::time_text;

TEST_CASE("progress: one role is not named") {
  CHECK(progress_text(120, 1200, {{"loss", 0.30121}, {"lr/x", 3e-3}, {"grad_norm/x", 0.8249}},
                      281.3, 45.2) ==
        "step 120/1200  loss 0.3012  lr 3.0e-03  grad 0.82  281 samples/s  eta 0:45");
}

TEST_CASE("progress: several roles are named") {
  CHECK(progress_text(1, 2, {{"lr/a", 1e-3}, {"lr/b", 2e-3}}, 0, 3725) ==
        "step 1/2  lr a 1.0e-03 b 2.0e-03  eta 1:02:05");
}

TEST_CASE("progress: shares of time add up to all of it") {
  CHECK(time_text(100, 90, {1, 40, 35, 4}) ==
        "100.0 s: data 1 %, forward 40 %, backward 35 %, optimizer 4 %, other parts of steps 10 %, "
        "between steps 10 %");
}
