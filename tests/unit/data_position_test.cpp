// SPDX-License-Identifier: Apache-2.0
// The saved position: a loader that is restored at any place hands out what the other one would
// have, under any number of data-parallel groups.
#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "error_message.hpp"
#include "fake_data.hpp"

#include <doctest/doctest.h>

#include "core/data/record.hpp"

namespace limbeck {
namespace {

using namespace testing;

// ---- restoring

TEST_CASE("a record restores every position, in a window, at its ends and between epochs") {
  const auto check_all = [](auto&& change) {
    Setup setup;
    change(setup);
    // 23 samples in batches of 3: an epoch has 7, of which 2 samples are dropped.
    const auto whole = rows_of_next(*setup.loader(3), 21);
    for (const int64_t workers : {0, 2}) {
      for (int64_t taken = 0; taken <= 20; ++taken) {
        const auto first = setup.loader(3, workers);
        rows_of_next(*first, taken);
        const auto saved = DataRecord::from_json(first->record().to_json());
        const auto second = setup.loader(3, workers);
        second->restore(saved);
        CHECK(second->record() == first->record());
        CHECK(rows_of_next(*second, 1) ==
              Rows(whole.begin() + 3 * taken, whole.begin() + 3 * taken + 3));
      }
    }
  };
  check_all([](Setup&) {});
  check_all([](Setup& setup) { setup.data.shuffle = false; });
  check_all([](Setup& setup) { setup.data.is_reference_order = true; });
  check_all([](Setup& setup) { setup.fake.mix = {{"a", 9, 2.0}, {"b", 23, 1.0}}; });
}

TEST_CASE("a position is not that of one sample more or less") {
  Setup setup;
  const auto loader = setup.loader(3);
  rows_of_next(*loader, 2);
  auto record = loader->record();
  const auto next = rows_of(*loader->next());
  for (const int64_t step : {-1, 1}) {
    auto wrong = record;
    wrong.position.sample += step;
    const auto other = setup.loader(3);
    other->restore(wrong);
    CHECK(rows_of(*other->next()) != next);
  }
}

TEST_CASE("samples that were read ahead but not handed out do not count") {
  Setup setup;
  const auto loader = setup.loader(2, 3);
  loader->next();
  CHECK(loader->record().position == DataPosition{0, 2});
}

TEST_CASE("a record holds what gives a position its meaning") {
  Setup setup;
  setup.mesh.shard = 2;
  setup.mesh.replicate = 2;
  setup.data.window = 3;
  const auto record = setup.loader(2)->record();
  CHECK(record.total_samples == 23);
  CHECK(record.seed == 5);
  CHECK(record.order == "epoch");
  CHECK(record.mix == "repeat");
  CHECK(record.window == 3);
  CHECK(record.groups == 4);
  CHECK(record.batch_size == 2);
  CHECK(record.fingerprint != 0);
  CHECK(DataRecord::from_json(record.to_json()) == record);
}

TEST_CASE("a record of other data or another order is refused with what differs") {
  Setup setup;
  const auto loader = setup.loader(3);
  rows_of_next(*loader, 4);
  const auto record = loader->record();
  const auto fault = [&](auto&& change) {
    Setup other;
    change(other);
    const auto fresh = other.loader(3);
    const auto message = message_of([&] { fresh->restore(record); });
    CHECK(fresh->position() == DataPosition{});
    fresh->restore(record, /*allow_change=*/true);
    CHECK(fresh->position() == record.position);
    return message;
  };
  CHECK(has(fault([](Setup& s) { s.seed = 6; }), "seed is 6, was 5"));
  CHECK(has(fault([](Setup& s) { s.data.shuffle = false; }), "order is sequential, was epoch"));
  CHECK(has(fault([](Setup& s) { s.data.is_reference_order = true; }),
            "order is reference, was epoch"));
  CHECK(has(fault([](Setup& s) { s.data.window = 3; }), "the shuffle window is 3, was 2"));
  CHECK(has(fault([](Setup& s) {
              s.fake.mix = {{"a", 9, 2.0}, {"b", 23, 1.0}};
            }),
            "mix is weight, was repeat"));
  CHECK(has(fault([](Setup& s) { s.fake.fingerprint = 1; }), "fingerprint of files"));
  CHECK(has(fault([](Setup& s) {
              s.fake.ends.back() = 24;
              s.fake.length = 24;
            }),
            "the number of samples is 24, was 23"));
}

TEST_CASE("after an allowed change, a position behind the end is the next epoch") {
  Setup setup;
  const auto loader = setup.loader(3);
  rows_of_next(*loader, 7);
  Setup smaller;
  smaller.fake.length = 16;
  smaller.fake.ends = {4, 5, 9, 14, 16};
  const auto other = smaller.loader(3);
  other->restore(loader->record(), /*allow_change=*/true);
  CHECK(other->position() == DataPosition{1, 0});
}

TEST_CASE("text that is no record of this version is refused") {
  const std::string good = DataRecord{{1, 2}, 3, 4, "epoch", "repeat", 5, 6, 7, 8}.to_json();
  CHECK_NOTHROW(DataRecord::from_json(good));
  const auto fault = [&](const std::string& from, const std::string& to) {
    auto text = good;
    const auto at = text.find(from);
    REQUIRE(at != std::string::npos);
    text.replace(at, from.size(), to);
    return message_of([&] { DataRecord::from_json(text); });
  };
  CHECK(has(fault("{", "["), "is not a JSON object"));
  CHECK(has(fault("\"version\":1", "\"version\":2"), "has format 2; this limbeck reads format 1"));
  CHECK(has(fault("\"epoch\":1", "\"epoch\":-1"), "no integer 'epoch' of at least 0"));
  CHECK(has(fault("\"epoch\":1", "\"epoch\":1.5"), "no integer 'epoch'"));
  CHECK(has(fault("\"epoch\":1", "\"epoch\":18446744073709551615"), "no integer 'epoch'"));
  CHECK(has(fault("\"groups\":7", "\"groups\":0"), "no integer 'groups' of at least 1"));
  CHECK(has(fault("\"order\":\"epoch\"", "\"order\":1"), "no text 'order'"));
  CHECK(has(fault("\"fingerprint\":\"6\"", "\"fingerprint\":\"x\""), "no hexadecimal number"));
  CHECK(has(fault("\"seed\":\"4\",", ""), "no hexadecimal number 'seed'"));
}

// ---- data-parallel groups, without ranks

// What each of `groups` groups gets in `steps` steps from `from` on.
std::vector<Rows> shards(
    Setup& setup, int64_t groups, int64_t batch, DataPosition from, int64_t steps) {
  std::vector<Rows> all;
  for (int64_t group = 0; group < groups; ++group) {
    setup.mesh.shard = groups;
    setup.mesh.rank = group;
    const auto loader = setup.loader(batch);
    loader->seek(from);
    all.push_back(rows_of_next(*loader, steps));
  }
  return all;
}

Rows sorted_union(const std::vector<Rows>& all) {
  Rows rows;
  for (const auto& one : all) {
    rows.insert(rows.end(), one.begin(), one.end());
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

TEST_CASE("groups share an epoch without overlap, and together they are the single stream") {
  Setup setup;
  setup.mesh = {};
  const auto single = rows_of_next(*setup.loader(4), 5);
  for (const int64_t groups : {1, 2, 4}) {
    auto together = sorted_union(shards(setup, groups, 4 / groups, {}, 5));
    CHECK(std::set<int64_t>(together.begin(), together.end()).size() == 20);
    auto expected = single;
    std::sort(expected.begin(), expected.end());
    CHECK(together == expected);
  }
}

TEST_CASE("an epoch that changes its number of groups on the way still visits each sample once") {
  Setup setup;
  Rows seen;
  DataPosition position;
  for (const auto& [groups, batch, steps] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
           {2, 2, 1}, {4, 1, 2}, {1, 3, 1}, {3, 2, 1}}) {
    const auto all = sorted_union(shards(setup, groups, batch, position, steps));
    seen.insert(seen.end(), all.begin(), all.end());
    position.sample += groups * batch * steps;
  }
  CHECK(position.sample == 21);
  setup.mesh = {};
  auto single = rows_of_next(*setup.loader(21), 1);
  std::sort(single.begin(), single.end());
  std::sort(seen.begin(), seen.end());
  CHECK(seen == single);
}

TEST_CASE("a record of two groups is continued by three") {
  Setup setup;
  setup.mesh.shard = 2;
  const auto two = setup.loader(2);
  two->next();
  const auto record = two->record();
  CHECK(record.groups == 2);

  setup.mesh = {};
  const auto single = rows_of_next(*setup.loader(1), 10);
  std::vector<Rows> rest;
  for (int64_t group = 0; group < 3; ++group) {
    setup.mesh.shard = 3;
    setup.mesh.rank = group;
    const auto loader = setup.loader(2);
    loader->restore(record);
    rest.push_back(rows_of(*loader->next()));
  }
  Rows expected(single.begin() + 4, single.end());
  std::sort(expected.begin(), expected.end());
  CHECK(sorted_union(rest) == expected);
}

TEST_CASE("ranks of one sequence group see the same samples, other groups see others") {
  Setup setup;
  setup.mesh = {1, 2, 2, 0};
  std::vector<Rows> rows;
  for (int64_t rank = 0; rank < 4; ++rank) {
    setup.mesh.rank = rank;
    rows.push_back(rows_of(*setup.loader(2)->next()));
  }
  CHECK(rows[0] == rows[1]);
  CHECK(rows[2] == rows[3]);
  CHECK(rows[0] != rows[2]);
}

}  // namespace
}  // namespace limbeck
