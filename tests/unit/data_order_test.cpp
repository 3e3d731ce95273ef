// SPDX-License-Identifier: Apache-2.0
#include "core/base/hash.hpp"
#include "core/data/order.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "core/base/error.hpp"

namespace limbeck {
namespace {

using Rows = std::vector<int64_t>;

Rows epoch_of(Order& order, int64_t epoch) {
  Rows rows;
  for (int64_t k = 0; k < order.length(); ++k) {
    rows.push_back(order.at(epoch, k));
  }
  return rows;
}

bool is_permutation_of_all(Rows rows) {
  std::sort(rows.begin(), rows.end());
  Rows all(rows.size());
  std::iota(all.begin(), all.end(), int64_t{0});
  return rows == all;
}

// 23 samples in 7 runs of unequal size, one of them empty.
const Rows kEnds = {4, 5, 9, 9, 14, 16, 23};

OrderSpec spec(uint64_t seed, int64_t window) {
  return {23, kEnds, seed, OrderKind::kEpoch, window, {}};
}

// The samples of a batch that one group sees, as the loader deals them out.
Rows dealt(Order& order, int64_t from, int64_t batch, int64_t group, int64_t groups) {
  Rows rows;
  for (int64_t slot = 0; slot < batch; ++slot) {
    rows.push_back(order.at(0, from + place_in_batch(group, slot, groups)));
  }
  return rows;
}

TEST_CASE("finalise64 and shuffle give the published and the pinned numbers") {
  // First outputs of SplitMix64 with seed 1234567, as in its author's reference code.
  const uint64_t step = 0x9E3779B97F4A7C15u;
  CHECK(finalise64(1234567u + step) == 6457827717110365317u);
  CHECK(finalise64(1234567u + 2 * step) == 3203168211198807973u);
  CHECK(finalise64(1234567u + 3 * step) == 9817491932198370423u);
  CHECK(fold(0, 0) == 0xA706DD2F4D197E6Fu);
  CHECK(fold(1, 2) == 0x0B95F66D327E8D78u);
  Rows items = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  shuffle(items, 42);
  CHECK(items == Rows{0, 9, 5, 8, 6, 4, 7, 2, 1, 3});
}

// The numbers of these two tests were also computed by an implementation in another language.
TEST_CASE("the order of an epoch is pinned") {
  Order order(spec(7, 2));
  CHECK(epoch_of(order, 0) ==
        Rows{16, 7, 22, 19, 20, 8, 21, 18, 5, 17, 6, 12, 9, 10, 13, 4, 11, 0, 15, 14, 1, 3, 2});
  CHECK(epoch_of(order, 1) ==
        Rows{9, 13, 12, 14, 15, 11, 10, 17, 22, 8, 21, 6, 18, 19, 16, 7, 5, 20, 3, 2, 1, 0, 4});
  Order singles({10, {}, 0, OrderKind::kEpoch, 64, {}});
  CHECK(epoch_of(singles, 0) == Rows{5, 8, 4, 9, 3, 1, 7, 2, 0, 6});
}

TEST_CASE("every epoch is a permutation of all samples, for any window") {
  for (const int64_t window : {1, 2, 3, 6, 7, 64}) {
    Order order(spec(11, window));
    for (int64_t epoch = 0; epoch < 20; ++epoch) {
      CHECK(is_permutation_of_all(epoch_of(order, epoch)));
    }
  }
  Order plain({23, kEnds, 11, OrderKind::kSequential, 2, {}});
  auto rows = epoch_of(plain, 5);
  CHECK(std::is_sorted(rows.begin(), rows.end()));
  CHECK(is_permutation_of_all(rows));
  rows[3] = rows[4];
  CHECK_FALSE(is_permutation_of_all(rows));
}

TEST_CASE("the runs of a window are visited together and no run comes back later") {
  const int64_t window = 2;
  Order order(spec(3, window));
  CHECK(order.runs() == 6);  // the empty one does not count
  for (int64_t epoch = 0; epoch < 10; ++epoch) {
    std::set<int64_t> finished, open;
    std::vector<int64_t> left = {4, 1, 4, 5, 2, 7};
    int64_t in_window = 0;
    for (const int64_t row : epoch_of(order, epoch)) {
      const int64_t run = order.run_of(row);
      CHECK(finished.count(run) == 0);
      if (open.insert(run).second) {
        // A new run opens only within the window, or when all runs of the last one are done.
        ++in_window;
        CHECK(in_window <= window);
      }
      if (--left[static_cast<size_t>(run)] == 0) {
        finished.insert(run);
        if (finished.size() % window == 0) {
          in_window = 0;
        }
      }
    }
    CHECK(finished.size() == 6);
  }
}

TEST_CASE("samples inside a window are mixed, not only the runs") {
  Order order(spec(3, 2));
  const auto rows = epoch_of(order, 0);
  int neighbours = 0;
  for (size_t i = 1; i < rows.size(); ++i) {
    neighbours += rows[i] == rows[i - 1] + 1 ? 1 : 0;
  }
  CHECK(neighbours < 8);  // 17 if only the runs were shuffled
}

TEST_CASE("other seeds and other epochs give other orders, the same ones the same") {
  Order a(spec(1, 3)), again(spec(1, 3)), b(spec(2, 3));
  CHECK(epoch_of(a, 0) == epoch_of(again, 0));
  CHECK(epoch_of(a, 0) != epoch_of(b, 0));
  std::set<Rows> seen;
  for (int64_t epoch = 0; epoch < 50; ++epoch) {
    seen.insert(epoch_of(a, epoch));
  }
  CHECK(seen.size() == 50);
  // Seed and epoch are not added up: (1, 1) is not (2, 0).
  CHECK(epoch_of(a, 1) != epoch_of(b, 0));
}

TEST_CASE("any place can be asked for at any time") {
  Order forward(spec(5, 2)), jumping(spec(5, 2));
  const Rows first = epoch_of(forward, 0), third = epoch_of(forward, 2);
  for (const int64_t k : {22, 0, 13, 7, 21, 1}) {
    CHECK(jumping.at(2, k) == third[static_cast<size_t>(k)]);
    CHECK(jumping.at(0, k) == first[static_cast<size_t>(k)]);
  }
}

TEST_CASE("the samples of a global batch do not depend on how groups and batches divide it") {
  Order order(spec(9, 3));
  Rows one = dealt(order, 0, 16, 0, 1);
  Rows two_micro_batches = dealt(order, 0, 8, 0, 1);
  const Rows second = dealt(order, 8, 8, 0, 1);
  two_micro_batches.insert(two_micro_batches.end(), second.begin(), second.end());
  CHECK(one == two_micro_batches);

  // Two groups of 8 and four of 4: slot j of group q is at place q + j * groups.
  for (const int64_t groups : {2, 4, 8}) {
    Rows together(16);
    for (int64_t group = 0; group < groups; ++group) {
      const Rows mine = dealt(order, 0, 16 / groups, group, groups);
      for (size_t slot = 0; slot < mine.size(); ++slot) {
        together[static_cast<size_t>(group) + slot * static_cast<size_t>(groups)] = mine[slot];
      }
    }
    CHECK(together == one);
  }
  std::swap(one[0], one[1]);
  CHECK(one != two_micro_batches);
}

TEST_CASE("each of the places of a small shuffle is about equally likely") {
  // 6 orders of 3 items, 6000 keys: 1000 each, standard deviation 29.
  std::vector<int> counts(6, 0);
  for (uint64_t key = 0; key < 6000; ++key) {
    Rows items = {0, 1, 2};
    shuffle(items, fold(key, 0));
    const std::vector<Rows> orders = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                      {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    ++counts[static_cast<size_t>(std::find(orders.begin(), orders.end(), items) - orders.begin())];
  }
  for (const int count : counts) {
    CHECK(count > 1000 - 5 * 29);
    CHECK(count < 1000 + 5 * 29);
  }
}

TEST_CASE("a window larger than the data set and a single sample are fine") {
  Order all(spec(1, INT64_MAX));
  CHECK(is_permutation_of_all(epoch_of(all, 0)));
  Order one({1, {}, 1, OrderKind::kEpoch, 1, {}});
  CHECK(one.at(3, 0) == 0);
}

TEST_CASE("a spec that breaks its rules and places outside are refused") {
  CHECK_THROWS_AS(Order({0, {}, 0, OrderKind::kEpoch, 1, {}}), Error);
  CHECK_THROWS_AS(Order({3, {}, 0, OrderKind::kEpoch, 0, {}}), Error);
  CHECK_THROWS_AS(Order({3, {2}, 0, OrderKind::kEpoch, 1, {}}), Error);
  CHECK_THROWS_AS(Order({3, {2, 1, 3}, 0, OrderKind::kEpoch, 1, {}}), Error);
  CHECK_THROWS_AS(Order({3, {-1, 3}, 0, OrderKind::kEpoch, 1, {}}), Error);
  Order order({3, {}, 0, OrderKind::kEpoch, 1, {}});
  CHECK_THROWS_AS(order.at(0, 3), Error);
  CHECK_THROWS_AS(order.at(0, -1), Error);
  CHECK_THROWS_AS(order.at(-1, 0), Error);
  CHECK_THROWS_AS(order.run_of(3), Error);
}

}  // namespace
}  // namespace limbeck
