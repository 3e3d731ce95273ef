// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "core/base/error.hpp"
#include "core/manifest/diagnostics.hpp"

using limbeck::Diagnostics;

TEST_CASE("position: parts that are not known are left out") {
  CHECK(limbeck::to_string({"x.toml", 3, 1}) == "x.toml:3:1");
  CHECK(limbeck::to_string({"x.toml", 3, 0}) == "x.toml:3");
  CHECK(limbeck::to_string({"--set", 0, 0}) == "--set");
  CHECK(limbeck::to_string({}).empty());
}

TEST_CASE("diagnostics: errors come in the order of the file, with hints and their number") {
  Diagnostics diagnostics;
  diagnostics.error({"x.toml", 10, 2}, "third");
  diagnostics.error({"x.toml", 9, 1}, "first", "do this");
  diagnostics.warn({"x.toml", 1, 1}, "not an error");
  diagnostics.error({"x.toml", 9, 7}, "second");

  CHECK_THROWS_WITH_AS(diagnostics.throw_if_errors(),
                       "x.toml:9:1: first\n  hint: do this\nx.toml:9:7: second\n"
                       "x.toml:10:2: third\n3 errors",
                       limbeck::Error);
}

TEST_CASE("diagnostics: warnings alone do not throw") {
  Diagnostics diagnostics;
  diagnostics.warn({"x.toml", 1, 1}, "careful");

  CHECK_FALSE(diagnostics.has_errors());
  CHECK_NOTHROW(diagnostics.throw_if_errors());
  CHECK(diagnostics.items().size() == 1);
}

TEST_CASE("diagnostics: one fault that is met twice is reported once") {
  Diagnostics diagnostics;
  diagnostics.error({"x.toml", 1, 1}, "same");
  diagnostics.error({"x.toml", 1, 1}, "same");
  diagnostics.error({"x.toml", 1, 1}, "other");

  CHECK(diagnostics.items().size() == 2);
}
