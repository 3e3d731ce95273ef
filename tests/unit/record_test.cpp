// SPDX-License-Identifier: Apache-2.0
// What a record of a run may say of its command line.
#include <string>
#include <vector>

#include "core/train/record.hpp"

#include <doctest/doctest.h>

using limbeck::without_secrets;

TEST_CASE("record: values of secret keys are not in it, however they are written") {
  const std::vector<std::string> keys = {"method.token", "prepare[0].key"};
  const std::vector<std::string> given = {"limbeck",
                                          "train",
                                          "x.toml",
                                          "--set",
                                          "method.token=hush",
                                          "--set=method.token=hush",
                                          "--set",
                                          "prepare.0.key = hush",
                                          "--set",
                                          "method={ token = \"hush\" }",
                                          "--set",
                                          "run.name=hush"};
  const auto shown = without_secrets(given, keys);

  REQUIRE(shown.size() == given.size());
  CHECK(shown[4] == "method.token=***");
  CHECK(shown[5] == "--set=method.token=***");
  CHECK(shown[7] == "prepare.0.key =***");
  CHECK(shown[9] == "method=***");
  CHECK(shown[11] == "run.name=hush");
  CHECK(shown[2] == "x.toml");
  CHECK(without_secrets(given, {}) == given);
}
