// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include "core/tensor/handle.hpp"
#include "core/track/metrics.hpp"

#include <doctest/doctest.h>

using limbeck::lend;
using limbeck::Metrics;

TEST_CASE("metrics: reports of one name are reduced as they say") {
  Metrics metrics;
  auto& table = metrics.table();
  for (const double value : {1.0, 5.0, 3.0}) {
    table.scalar(&table, "mean", value, LB_MEAN);
    table.scalar(&table, "sum", value, LB_SUM);
    table.scalar(&table, "max", value, LB_MAX);
    table.scalar(&table, "last", value, LB_LAST);
  }

  const auto numbers = metrics.take_numbers();
  CHECK(numbers.at("mean") == 3.0);
  CHECK(numbers.at("sum") == 9.0);
  CHECK(numbers.at("max") == 5.0);
  CHECK(numbers.at("last") == 3.0);
  CHECK(metrics.take_numbers().empty());
}

TEST_CASE("metrics: tensors and numbers mix, history is dropped") {
  Metrics metrics;
  auto& table = metrics.table();
  const auto loss = (at::ones({1}) * 2).set_requires_grad(true) * 1;
  table.tensor(&table, "loss", lend(loss), LB_MEAN);
  table.scalar(&table, "loss", 4.0, LB_MEAN);

  CHECK(metrics.take_numbers().at("loss") == 3.0);
}

TEST_CASE("metrics: a tensor that is no number is left out, the others stay") {
  Metrics metrics;
  auto& table = metrics.table();
  table.tensor(&table, "bad", lend(at::ones({2})), LB_MEAN);
  table.scalar(&table, "good", 1.0, LB_MEAN);

  const auto numbers = metrics.take_numbers();
  CHECK(numbers.size() == 1);
  CHECK(numbers.count("good") == 1);
}

TEST_CASE("metrics: files are handed out once") {
  Metrics metrics;
  auto& table = metrics.table();
  table.file(&table, "sample", "image/png", "/x/y.png", nullptr);

  const auto files = metrics.take_files();
  REQUIRE(files.size() == 1);
  CHECK(files[0].path == "/x/y.png");
  CHECK(files[0].caption.empty());
  CHECK(metrics.take_files().empty());
}
