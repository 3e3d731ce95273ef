// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdlib>
#include <limits>

#include <doctest/doctest.h>

#include "core/base/text.hpp"

using limbeck::nearest;
using limbeck::seconds_of;

TEST_CASE("text: cat and join") {
  CHECK(limbeck::cat("a", 1, ':', 2.5) == "a1:2.5");
  CHECK(limbeck::join({"a", "b", "c"}) == "a, b, c");
  CHECK(limbeck::join({"a", "b"}, "-") == "a-b");
  CHECK(limbeck::join({}).empty());
}

TEST_CASE("text: nearest counts insertions, deletions, substitutions and swaps") {
  CHECK(nearest("sed", {"device", "seed"}) == "seed");
  CHECK(nearest("seeed", {"seed"}) == "seed");
  CHECK(nearest("sead", {"seed"}) == "seed");
  CHECK(nearest("sede", {"seed", "sides"}) == "seed");
  CHECK(nearest("widht", {"width"}) == "width");
}

TEST_CASE("text: nearest is empty when nothing is near") {
  CHECK(nearest("colour", {"shuffle", "seed"}).empty());
  CHECK(nearest("seed", {}).empty());
  CHECK(nearest("abcd", {"abxyz"}).empty());  // distance 3, at most 2
}

TEST_CASE("text: nearest allows a third of a long word") {
  CHECK(nearest("learningratee", {"learning_rate"}) == "learning_rate");
  CHECK(nearest("lerning_rat_x", {"learning_rate"}) == "learning_rate");  // 3 of 13
  CHECK(nearest("max_steps", {"max_train_steps"}).empty());               // 6 of 9
}

TEST_CASE("text: of equally near words the first is taken") {
  CHECK(nearest("bat", {"cat", "hat"}) == "cat");
}

TEST_CASE("text: shortest reads back to the same value") {
  for (const double value :
       {0.1, 1.0 / 3.0, 1e-8, 5e-324, 1.7976931348623157e308, -0.0, 123456.0}) {
    CHECK(std::strtod(limbeck::shortest(value).c_str(), nullptr) == value);
  }
  CHECK(limbeck::shortest(0.1) == "0.1");
  CHECK(limbeck::shortest(1e-8) == "1e-08");
  CHECK(limbeck::shortest(3.0) == "3");
  CHECK(limbeck::shortest(std::numeric_limits<double>::infinity()) == "inf");
}

TEST_CASE("text: spans of time") {
  CHECK(seconds_of("") == 0);
  CHECK(seconds_of("90s") == 90);
  CHECK(seconds_of("4h30m") == 16200);
  CHECK(seconds_of("1d1h1m1s") == 90061);
  for (const char* wrong : {"4", "h", "30m4h", "-1s", "1.5h", "4h 30m", "4 h", "1s1s"}) {
    CAPTURE(wrong);
    CHECK_FALSE(seconds_of(wrong).has_value());
  }
}
