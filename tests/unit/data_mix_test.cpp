// SPDX-License-Identifier: Apache-2.0
// The reference order, and sources mixed by weight.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "error_message.hpp"
#include "fake_data.hpp"

#include <doctest/doctest.h>

#include "core/data/order.hpp"

namespace limbeck {
namespace {

using namespace testing;

OrderSpec reference(int64_t length, uint64_t seed) {
  return {length, {}, seed, OrderKind::kReference, 1, {}};
}

Rows places(Order& order, int64_t epoch) {
  Rows rows;
  for (int64_t k = 0; k < order.length(); ++k) {
    rows.push_back(order.at(epoch, k));
  }
  return rows;
}

TEST_CASE("the reference order is that of FastVideo's sampler, in every epoch and every group") {
  // Seed 42, 17 samples, batches of 2 in 3 groups: 12 of them are used.
  Order order(reference(17, 42));
  const Rows golden = {13, 4, 3, 15, 8, 16, 9, 11, 12, 10, 6, 2, 1, 7, 14, 0, 5};
  CHECK(places(order, 0) == golden);
  CHECK(places(order, 3) == golden);

  const std::vector<std::vector<Rows>> groups = {
      {{13, 15}, {9, 10}}, {{4, 8}, {11, 6}}, {{3, 16}, {12, 2}}};
  for (int64_t group = 0; group < 3; ++group) {
    Setup setup;
    setup.fake.length = 17;
    setup.fake.ends = {17};
    setup.seed = 42;
    setup.data.is_reference_order = true;
    setup.mesh.shard = 3;
    setup.mesh.rank = group;
    const auto loader = setup.loader(2);
    for (const auto& batch : groups[static_cast<size_t>(group)]) {
      CHECK(rows_of(*loader->next()) == batch);
    }
    CHECK(loader->position() == DataPosition{0, 12});
    CHECK(rows_of(*loader->next()) == groups[static_cast<size_t>(group)].front());
  }
}

TEST_CASE("the reference order is what libtorch's randperm gives") {
  for (const uint64_t seed : {0UL, 7UL, 0xFFFFFFFFUL, 0x123456789ABCDEFUL}) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    const auto perm = at::randperm(1000, generator, at::TensorOptions().dtype(at::kLong));
    const auto* values = perm.const_data_ptr<int64_t>();
    Order order(reference(1000, seed));
    CHECK(places(order, 0) == Rows(values, values + 1000));
    Order other(reference(1000, seed + 1));
    CHECK(places(other, 0) != Rows(values, values + 1000));
  }
}

// Three sources: rows 0 ... 9, 10 ... 13 and 14 ... 22, in the runs of `ends`.
OrderSpec mixed(OrderKind kind, const std::vector<double>& weights) {
  return {
      23, {4, 10, 14, 16, 23}, 5, kind, 4, {{10, weights[0]}, {14, weights[1]}, {23, weights[2]}}};
}

int64_t source_of(int64_t row) { return row < 10 ? 0 : row < 14 ? 1 : 2; }

TEST_CASE("each source gets its share of every epoch, exactly") {
  // 23 places by 0.5 : 0.3 : 0.2 are 11.5, 6.9 and 4.6.
  for (const auto kind : {OrderKind::kEpoch, OrderKind::kSequential}) {
    Order order(mixed(kind, {5, 3, 2}));
    CHECK(order.length() == 23);
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      Rows counts(3, 0);
      for (const int64_t row : places(order, epoch)) {
        ++counts[static_cast<size_t>(source_of(row))];
      }
      CHECK(counts == Rows{11, 7, 5});
    }
  }
}

TEST_CASE("no sample of a source comes back before all others of it were visited") {
  Order order(mixed(OrderKind::kEpoch, {5, 3, 2}));
  std::map<int64_t, Rows> visits;  // of each source, over ten epochs
  for (int64_t epoch = 0; epoch < 10; ++epoch) {
    for (const int64_t row : places(order, epoch)) {
      visits[source_of(row)].push_back(row);
    }
  }
  const Rows sizes = {10, 4, 9}, begins = {0, 10, 14};
  for (int64_t source = 0; source < 3; ++source) {
    const auto size = sizes[static_cast<size_t>(source)];
    auto& mine = visits[source];
    bool are_cycles_alike = true;
    for (size_t at = 0; at + static_cast<size_t>(size) <= mine.size();
         at += static_cast<size_t>(size)) {
      Rows cycle(mine.begin() + static_cast<int64_t>(at),
                 mine.begin() + static_cast<int64_t>(at) + size);
      are_cycles_alike = are_cycles_alike && cycle == Rows(mine.begin(), mine.begin() + size);
      std::sort(cycle.begin(), cycle.end());
      for (int64_t i = 0; i < size; ++i) {
        CHECK(cycle[static_cast<size_t>(i)] == begins[static_cast<size_t>(source)] + i);
      }
    }
    CHECK_FALSE(are_cycles_alike);
  }
}

TEST_CASE("a source without weight is never visited and does not lengthen the epoch") {
  Order order(mixed(OrderKind::kEpoch, {1, 0, 1}));
  CHECK(order.length() == 19);
  Rows counts(3, 0);
  for (const int64_t row : places(order, 0)) {
    ++counts[static_cast<size_t>(source_of(row))];
  }
  CHECK(counts[1] == 0);
  CHECK(counts[0] + counts[2] == 19);
  CHECK(std::abs(counts[0] - counts[2]) == 1);
}

TEST_CASE("equal weights per sample are not the same as no weights: the mix has its own order") {
  // 10 : 4 : 9 are the sources' sizes, so every sample is visited once an epoch.
  Order order(mixed(OrderKind::kEpoch, {10, 4, 9}));
  auto rows = places(order, 0);
  CHECK(rows != places(order, 1));
  std::sort(rows.begin(), rows.end());
  for (int64_t row = 0; row < 23; ++row) {
    CHECK(rows[static_cast<size_t>(row)] == row);
  }
}

TEST_CASE("without shuffling, sources take turns evenly and stay in their own order") {
  Order order(mixed(OrderKind::kSequential, {2, 0, 1}));
  const auto rows = places(order, 0);
  CHECK(Rows(rows.begin(), rows.begin() + 9) == Rows{0, 14, 1, 2, 15, 3, 4, 16, 5});
}

TEST_CASE("a mixed epoch can be entered anywhere") {
  Order order(mixed(OrderKind::kEpoch, {5, 3, 2}));
  const auto third = places(order, 2);
  Order other(mixed(OrderKind::kEpoch, {5, 3, 2}));
  CHECK(other.at(2, 11) == third[11]);
  CHECK(other.at(0, 0) == order.at(0, 0));
  CHECK(other.at(2, 22) == third[22]);
}

TEST_CASE("a mix keeps the window of each source together, so that its runs are read once") {
  // Two sources of 4 runs of 8 samples; a window of 4 runs leaves 2 to each.
  const OrderSpec spec = {
      64, {8, 16, 24, 32, 40, 48, 56, 64}, 3, OrderKind::kEpoch, 4, {{32, 1}, {64, 1}}};
  Order order(spec);
  std::map<int64_t, Rows> runs;  // of each source, in order of visit
  for (const int64_t row : places(order, 0)) {
    runs[row / 32].push_back(order.run_of(row));
  }
  for (const auto& [source, visited] : runs) {
    REQUIRE(visited.size() == 32);
    Rows first(visited.begin(), visited.begin() + 16), second(visited.begin() + 16, visited.end());
    for (const int64_t run : first) {
      CHECK(std::count(second.begin(), second.end(), run) == 0);
    }
  }
}

TEST_CASE("mixes that break their rules are refused") {
  const auto shares = [](std::vector<Share> of) {
    return OrderSpec{10, {4, 10}, 1, OrderKind::kEpoch, 1, std::move(of)};
  };
  CHECK_NOTHROW(Order(shares({{4, 1}, {10, 1}})));
  CHECK_THROWS_AS(Order(shares({{5, 1}, {10, 1}})), Error);  // inside a run
  CHECK_THROWS_AS(Order(shares({{4, 1}, {9, 1}})), Error);   // does not end at the length
  CHECK_THROWS_AS(Order(shares({{4, 0}, {10, 0}})), Error);  // nothing to visit
  CHECK_THROWS_AS(Order(shares({{4, -1}, {10, 1}})), Error);
  CHECK_THROWS_AS(Order(shares({{4, 1}, {4, 1}, {10, 1}})), Error);  // a weight and no samples
  auto spec = shares({{4, 1}, {10, 1}});
  spec.kind = OrderKind::kReference;
  CHECK_THROWS_AS(Order{spec}, Error);
}

// ---- as the loader does it

TEST_CASE("the loader mixes what the data set weighs, for any number of workers") {
  Rows seen;
  for (const int64_t workers : {0, 2}) {
    Setup setup;
    setup.fake.mix = {{"a", 9, 3.0}, {"b", 23, 1.0}};
    const auto loader = setup.loader(23, workers);
    CHECK(loader->epoch_length() == 23);
    const auto rows = rows_of(*loader->next());
    CHECK(std::count_if(rows.begin(), rows.end(), [](int64_t row) { return row < 9; }) == 17);
    CHECK((seen.empty() || seen == rows));
    seen = rows;
  }
}

TEST_CASE("a mix that cannot be is refused with the source's name") {
  const auto fault = [](std::vector<lb_mix_source> mix, Fault expected, bool is_reference = false) {
    Setup setup;
    setup.fake.mix = std::move(mix);
    setup.data.is_reference_order = is_reference;
    return message_of([&] { setup.loader(8); }, expected);
  };
  const auto data = Fault::kData, plugin = Fault::kPlugin;
  CHECK(has(fault({{"a", 9, -1.0}, {"b", 23, 1.0}}, data), "the weight of 'a' is -1"));
  CHECK(has(fault({{"a", 9, 0.0}, {"b", 23, 0.0}}, data), "all weights of its sources are 0"));
  CHECK(has(fault({{"a", 9, 1.0}, {"b", 9, 1.0}, {"c", 23, 1.0}}, data),
            "'b' has the weight 1, but no samples"));
  CHECK(has(fault({{"a", 9, 1.0}, {"b", 22, 1.0}}, plugin), "'b' ends at 22"));
  CHECK(has(fault({{"a", 10, 1.0}, {"b", 23, 1.0}}, plugin), "'a' ends at 10, inside a run"));
  CHECK(has(fault({{"a", 9, 1.0}, {"b", 23, 1.0}}, data, true), "does not go together with a mix"));
  CHECK(has(fault({{"a", 16, 0.0}, {"b", 23, 1.0}}, data),
            "has 7 samples, fewer than one global batch of 8"));
}

TEST_CASE("no more runs are shuffled together than the data set keeps") {
  Setup setup;
  setup.data.window = 5;
  CHECK(setup.loader(2)->window() == 5);
  setup.fake.kept_runs = 2;
  const auto kept = setup.loader(2);
  CHECK(kept->window() == 2);
  setup.fake.kept_runs = 0;
  setup.data.window = 2;
  CHECK(rows_of_next(*kept, 11) == rows_of_next(*setup.loader(2), 11));
}

}  // namespace
}  // namespace limbeck
