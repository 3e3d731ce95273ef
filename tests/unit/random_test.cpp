// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <set>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "core/base/hash.hpp"
#include "core/plugin/status.hpp"
#include "core/tensor/handle.hpp"
#include "core/tensor/random.hpp"

#include <doctest/doctest.h>

using namespace limbeck;

namespace {

lb_key make_key(
    lb_stream stream, const char* purpose, int64_t step, uint32_t micro, uint32_t index = 0) {
  return {sizeof(lb_key), stream, purpose, step, micro, index};
}

at::Tensor normal(const lb_key& key, std::vector<int64_t> sizes) {
  lb_tensor* out = nullptr;
  check(random_api().normal(&key, sizes.data(), static_cast<uint32_t>(sizes.size()), &out));
  return take(out);
}

at::Tensor uniform(const lb_key& key, std::vector<int64_t> sizes) {
  lb_tensor* out = nullptr;
  check(random_api().uniform(&key, sizes.data(), static_cast<uint32_t>(sizes.size()), &out));
  return take(out);
}

// A process that is rank `rank` of `size` while it lives.
struct AsRank {
  AsRank(int64_t size, int64_t rank) { set_random_context({7, size, rank}); }
  ~AsRank() { set_random_context({}); }
};

}  // namespace

TEST_CASE("random: splitmix64 and fnv1a64 are SplitMix64 and FNV-1a") {
  CHECK(splitmix64(0) == 0xE220A8397B1DCDAFU);
  CHECK(fnv1a64("") == 0xcbf29ce484222325U);
  CHECK(fnv1a64("a") == 0xaf63dc4c8601ec8cU);
}

TEST_CASE("random: the same key gives the same numbers, any other key gives others") {
  const AsRank one(1, 0);
  const auto key = make_key(LB_NOISE, "noise", 3, 0);
  const auto draw = normal(key, {2, 5});

  CHECK(at::equal(draw, normal(key, {2, 5})));
  CHECK(!at::equal(draw, normal(make_key(LB_NOISE, "other", 3, 0), {2, 5})));
  CHECK(!at::equal(draw, normal(make_key(LB_NOISE, "noise", 4, 0), {2, 5})));
  CHECK(!at::equal(draw, normal(make_key(LB_NOISE, "noise", 3, 1), {2, 5})));
  CHECK(!at::equal(draw, normal(make_key(LB_NOISE, "noise", 3, 0, 1), {2, 5})));
  CHECK(!at::equal(draw, normal(make_key(LB_CONTROL, "noise", 3, 0), {2, 5})));
}

TEST_CASE("random: a sample sees the same noise however the batch is cut") {
  at::Tensor whole;
  {
    const AsRank one(1, 0);
    whole = normal(make_key(LB_NOISE, "noise", 1, 0), {16, 3});
    const auto first = normal(make_key(LB_NOISE, "noise", 1, 0), {8, 3});
    const auto second = normal(make_key(LB_NOISE, "noise", 1, 1), {8, 3});
    CHECK(at::equal(whole, at::cat({first, second})));
  }
  // Two ranks of eight: sample i of the global batch is slot i / 2 of rank i mod 2.
  for (int64_t rank = 0; rank < 2; ++rank) {
    const AsRank of_two(2, rank);
    const auto part = normal(make_key(LB_NOISE, "noise", 1, 0), {8, 3});
    CHECK(at::equal(part, whole.slice(0, rank, 16, 2)));
  }
}

TEST_CASE("random: control draws are equal on all ranks") {
  std::vector<int64_t> values[2];
  for (int64_t rank = 0; rank < 2; ++rank) {
    const AsRank of_two(2, rank);
    values[rank].resize(4);
    const auto key = make_key(LB_CONTROL, "exit", 1, 0);
    check(random_api().integers(&key, 0, 1000, values[rank].data(), 4));
  }
  CHECK(values[0] == values[1]);
}

TEST_CASE("random: normal numbers have the moments of N(0, 1)") {
  const auto values = normal_values(1, 0, {200'000}).to(at::kDouble);

  CHECK(std::abs(values.mean().item<double>()) < 0.01);
  CHECK(std::abs(values.var().item<double>() - 1.0) < 0.01);
  CHECK(std::abs(values.pow(3).mean().item<double>()) < 0.03);
  CHECK(std::abs(values.pow(4).mean().item<double>() - 3.0) < 0.06);
  // The bounds notice a deviation that is off by two percent.
  CHECK(std::abs((values * 1.02).var().item<double>() - 1.0) > 0.03);
}

TEST_CASE("random: uniform numbers fill [0, 1)") {
  const auto values = uniform_values(1, 0, {200'000}).to(at::kDouble);

  CHECK(values.min().item<double>() >= 0.0);
  CHECK(values.max().item<double>() < 1.0);
  CHECK(std::abs(values.mean().item<double>() - 0.5) < 0.003);
  CHECK(std::abs(values.var().item<double>() - 1.0 / 12) < 0.001);
}

TEST_CASE("random: the number of threads does not matter") {
  const auto one = normal_values(5, 2, {100'001});
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  const auto two = normal_values(5, 2, {100'001});
  at::set_num_threads(before);

  CHECK(at::equal(one, two));
}

TEST_CASE("random: integers stay in range and reach both ends") {
  const AsRank one(1, 0);
  std::vector<int64_t> values(2000);
  const auto key = make_key(LB_NOISE, "t", 1, 0);
  check(random_api().integers(&key, -3, 4, values.data(), 2000));

  const std::set<int64_t> seen(values.begin(), values.end());
  CHECK(seen == std::set<int64_t>{-3, -2, -1, 0, 1, 2, 3});
}

TEST_CASE("random: an empty range and a key without purpose are errors") {
  int64_t value = 0;
  auto key = make_key(LB_NOISE, "t", 1, 0);
  CHECK_THROWS(check(random_api().integers(&key, 4, 4, &value, 1)));
  key.purpose = "";
  CHECK_THROWS(check(random_api().integers(&key, 0, 4, &value, 1)));
}

TEST_CASE("random: a permutation holds every number once") {
  std::vector<int64_t> values(1000);
  const auto key = make_key(LB_CONTROL, "order", 1, 0);
  check(random_api().permutation(&key, values.data(), 1000));

  const std::set<int64_t> seen(values.begin(), values.end());
  CHECK(seen.size() == 1000);
  CHECK(*seen.begin() == 0);
  CHECK(*seen.rbegin() == 999);
  CHECK(!std::is_sorted(values.begin(), values.end()));
}

TEST_CASE("random: recorded draws replace generated ones, and a missing one is an error") {
  set_recorded_draws({{"noise/1/0/0", at::ones({2, 3})}});

  CHECK(at::equal(normal(make_key(LB_NOISE, "noise", 1, 0), {2, 3}), at::ones({2, 3})));
  CHECK_THROWS(uniform(make_key(LB_NOISE, "noise", 2, 0), {2, 3}));
  CHECK_THROWS(uniform(make_key(LB_NOISE, "noise", 1, 0), {3, 2}));

  set_recorded_draws({{"exit/1/0/0", at::tensor({3, 1}, at::kLong)}});
  const auto key = make_key(LB_CONTROL, "exit", 1, 0);
  std::vector<int64_t> values(2);
  CHECK(random_api().integers(&key, 0, 4, values.data(), 2) == nullptr);
  CHECK(values == std::vector<int64_t>{3, 1});
  CHECK_THROWS(check(random_api().integers(&key, 0, 3, values.data(), 2)));  // 3 is outside
  CHECK_THROWS(check(random_api().integers(&key, 0, 4, values.data(), 1)));
  set_recorded_draws({});
}
