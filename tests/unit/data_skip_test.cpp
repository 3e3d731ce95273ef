// SPDX-License-Identifier: Apache-2.0
// Samples that cannot be read, and how far reading runs ahead.
#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "error_message.hpp"
#include "fake_data.hpp"

#include <doctest/doctest.h>

namespace limbeck {
namespace {

using namespace testing;

TEST_CASE("the first sample that cannot be read stops a run that skips none") {
  Setup setup;
  setup.fake.broken_rows = {3};
  setup.data.shuffle = false;
  const auto loader = setup.loader(4);
  CHECK(has(message_of([&] { loader->next(); }), "the bytes are damaged"));
  CHECK(loader->skipped() == 0);
}

TEST_CASE("skipped samples are replaced, the others stay where they are") {
  Rows seen;
  for (const bool reads_many : {false, true}) {
    for (const int64_t workers : {0, 2}) {
      Setup setup;
      setup.vtable.read_many = reads_many ? fake_read_many : nullptr;
      setup.data.shuffle = false;
      setup.data.max_skipped = 5;
      const auto whole = rows_of_next(*setup.loader(4), 5);
      setup.fake.broken_rows = {3, 10};
      setup.fake.misshapen_rows = {17};
      const auto loader = setup.loader(4, workers);
      const auto rows = rows_of_next(*loader, 5);
      REQUIRE(rows.size() == whole.size());
      for (size_t i = 0; i < rows.size(); ++i) {
        const bool is_broken = whole[i] == 3 || whole[i] == 10 || whole[i] == 17;
        CHECK((rows[i] == whole[i]) != is_broken);
      }
      CHECK(loader->skipped() == 3);
      // The same for any number of workers, and again.
      CHECK((seen.empty() || rows == seen));
      seen = rows;
    }
  }
}

TEST_CASE("a replacement holds the values of its row") {
  Setup setup;
  setup.data.max_skipped = 5;
  setup.data.shuffle = false;
  setup.fake.broken_rows = {1};
  const auto batch = setup.loader(4)->next();
  const auto rows = rows_of(*batch);
  CHECK(rows[1] != 1);
  CHECK(batch->tensor("value")[1][0].item<float>() == static_cast<float>(rows[1]));
}

TEST_CASE("a sample is replaced by one of its own source") {
  Setup setup;
  setup.data.max_skipped = 5;
  setup.data.shuffle = false;
  setup.fake.mix = {{"a", 4, 1.0}, {"b", 23, 1.0}};
  setup.fake.broken_rows = {0, 1, 2};
  const auto rows = rows_of_next(*setup.loader(23), 1);
  CHECK(std::count_if(rows.begin(), rows.end(), [](int64_t row) { return row < 3; }) == 0);
  CHECK(std::count(rows.begin(), rows.end(), 3) == 12);  // half of the epoch is source a
}

TEST_CASE("too many unreadable samples stop the run with their number and the last reason") {
  for (const int64_t workers : {0, 1}) {
    Setup setup;
    setup.data.shuffle = false;
    setup.data.max_skipped = 2;
    setup.fake.broken_rows = {1, 5, 9};
    const auto loader = setup.loader(4, workers);
    const auto message = message_of([&] { rows_of_next(*loader, 3); });
    CHECK(has(message, "3 samples cannot be read, more than max_skipped = 2"));
    CHECK(has(message, "the bytes are damaged"));
    CHECK(has(message, "row 9"));
  }
}

TEST_CASE("a row counts once, however often it is met") {
  Setup setup;
  setup.data.max_skipped = 1;
  setup.fake.broken_rows = {5};
  const auto loader = setup.loader(23);
  CHECK_NOTHROW(rows_of_next(*loader, 4));
  CHECK(loader->skipped() == 1);
}

TEST_CASE("a data set of which nothing can be read stops the run") {
  Setup setup;
  setup.data.max_skipped = 1000;
  for (int64_t row = 0; row < 23; ++row) {
    setup.fake.broken_rows.insert(row);
  }
  const auto loader = setup.loader(4);
  CHECK(has(message_of([&] { loader->next(); }), "the bytes are damaged"));
}

TEST_CASE("a plugin that breaks its contract is never skipped") {
  Setup setup;
  setup.data.max_skipped = 100;
  setup.fake.adds_undeclared = true;
  const auto loader = setup.loader(4);
  CHECK(has(message_of([&] { loader->next(); }, Fault::kPlugin), "surprise"));
  CHECK(loader->skipped() == 0);
}

TEST_CASE("rows that are asked for are never replaced") {
  Setup setup;
  setup.data.max_skipped = 100;
  setup.fake.broken_rows = {7};
  const auto loader = setup.loader(4);
  CHECK(has(message_of([&] { loader->rows({6, 7}); }), "the bytes are damaged"));
  CHECK(rows_of(*loader->rows({6, 8})) == Rows{6, 8});
}

TEST_CASE("no more than two batches for each worker are read ahead") {
  for (const int64_t workers : {1, 3}) {
    Setup setup;
    const auto loader = setup.loader(2, workers);
    for (int64_t taken = 1; taken <= 6; ++taken) {
      loader->next();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const std::lock_guard lock(setup.fake.mutex);
      CHECK(static_cast<int64_t>(setup.fake.rows_read.size()) <= 2 * (taken + 2 * workers));
    }
  }
}

}  // namespace
}  // namespace limbeck
