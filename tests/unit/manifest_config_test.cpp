// SPDX-License-Identifier: Apache-2.0
// What a plugin reads: "limbeck.config/1".
#include <string>

#include <doctest/doctest.h>

#include "core/base/error.hpp"
#include "core/manifest/config.hpp"

namespace {

using limbeck::ConfigValue;

ConfigValue value(decltype(ConfigValue::value) content, bool is_given = true) {
  return {std::move(content), is_given, {}};
}

lb_config sample() {
  lb_config config;
  config.key = "method";
  config.table = {
      {"flag", value(true)},
      {"count", value(int64_t{3}, false)},
      {"rate", value(0.25)},
      {"name", value(std::string("a"))},
      {"steps", value(ConfigValue::List{value(int64_t{10}), value(int64_t{20})})},
      {"weights", value(ConfigValue::Table{{"x", value(1.5)}, {"y", value(2.5)}})},
  };
  return config;
}

}  // namespace

TEST_CASE("config: getters give values of their type, also inside lists and tables") {
  const lb_config config = sample();
  const auto& api = limbeck::config_api();

  CHECK(api.integer(&config, "flag") == 1);
  CHECK(api.integer(&config, "count") == 3);
  CHECK(api.integer(&config, "steps.1") == 20);
  CHECK(api.number(&config, "rate") == 0.25);
  CHECK(api.number(&config, "count") == 3.0);
  CHECK(api.number(&config, "weights.y") == 2.5);
  CHECK(std::string(api.text(&config, "name")) == "a");
}

TEST_CASE("config: lengths, keys and whether the user gave a value") {
  const lb_config config = sample();
  const auto& api = limbeck::config_api();

  CHECK(api.length(&config, "steps") == 2);
  CHECK(api.length(&config, "weights") == 2);
  CHECK(std::string(api.key(&config, "weights", 1)) == "y");
  CHECK(api.given(&config, "rate") == 1);
  CHECK(api.given(&config, "count") == 0);
}

TEST_CASE("config: a path that was not declared is zero, and no crash") {
  const lb_config config = sample();
  const auto& api = limbeck::config_api();

  CHECK(api.integer(&config, "none") == 0);
  CHECK(api.integer(&config, "name") == 0);
  CHECK(api.number(&config, "steps.2") == 0.0);
  CHECK(api.number(&config, "steps.x") == 0.0);
  CHECK(std::string(api.text(&config, "count")).empty());
  CHECK(api.length(&config, "rate") == 0);
  CHECK(std::string(api.key(&config, "weights", 2)).empty());
  CHECK(std::string(api.key(&config, "weights", -1)).empty());
  CHECK(api.given(&config, "none") == 0);
}

TEST_CASE("config: reads of core are typed and throw for what is not there") {
  const lb_config config = sample();

  CHECK(config.boolean("flag"));
  CHECK(config.integer("steps.0") == 10);
  CHECK(config.number("count") == 3.0);
  CHECK(config.text("name") == "a");
  CHECK_THROWS_AS(config.integer("rate"), limbeck::Error);
  CHECK_THROWS_WITH_AS(config.text("none"), "[method] has no \"none\" of this type",
                       limbeck::Error);
}

TEST_CASE("config: the table of functions says its size") {
  CHECK(limbeck::config_api().struct_size == sizeof(lb_config_api));
}
