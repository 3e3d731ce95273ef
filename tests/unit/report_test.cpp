// SPDX-License-Identifier: Apache-2.0
#include "quickstart/report.hpp"

#include <cmath>

#include <limbeck/error.hpp>

#include <doctest/doctest.h>

using quickstart::Report;

TEST_CASE("a value passes inside its band and on its edge") {
  Report report;
  report.add("a", 0.85, ">= 0.85");
  report.add("b", 15, "<= 15");
  report.add("c", 1e9);
  CHECK(report.has_passed());
  report.add("d", 0.8499, ">= 0.85");
  CHECK_FALSE(report.has_passed());
}

TEST_CASE("a value above an upper bound or not a number fails") {
  Report above;
  above.add("a", 15.01, "<= 15");
  CHECK_FALSE(above.has_passed());
  Report unknown;
  unknown.add("a", std::nan(""), "<= 15");
  CHECK_FALSE(unknown.has_passed());
}

TEST_CASE("JSON is flat and says whether all passed") {
  Report report;
  report.add("euler40.acc", 0.8125, ">= 0.5");
  report.add("euler40.fd", std::nan(""));
  CHECK(report.json() ==
        "{\n  \"euler40.acc\": 0.8125,\n  \"euler40.fd\": null,\n  \"passed\": true\n}\n");
}

TEST_CASE("the table shows bands and verdicts in columns") {
  Report report;
  report.add("long.name", 0.123456, ">= 0.5");
  report.add("x", 12.5);
  CHECK(report.table() ==
        "long.name  0.1235      >= 0.5      FAIL\n"
        "x          12.5\n"
        "Some values are outside their bands.\n");
}

TEST_CASE("a band that cannot be read is a bug") {
  Report report;
  CHECK_THROWS_AS(report.add("a", 1, "> 1"), lb::Error);
  CHECK_THROWS_AS(report.add("a", 1, ">= x"), lb::Error);
  CHECK_THROWS_AS(report.add("a", 1, ">="), lb::Error);
}
