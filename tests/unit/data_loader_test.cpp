// SPDX-License-Identifier: Apache-2.0
#include "core/data/loader.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "error_message.hpp"
#include "fake_data.hpp"

#include <doctest/doctest.h>

#include "core/base/error.hpp"
#include "core/data/service.hpp"
#include "core/plugin/status.hpp"

namespace limbeck {
namespace {

using namespace testing;

// ---- what batches hold

TEST_CASE("a batch holds what the samples say, padded to the tokens that were asked for") {
  Setup setup;
  setup.tokens = {{"context.tokens", 2}};
  const auto loader = setup.loader(4);
  const auto batch = loader->next();
  const auto rows = rows_of(*batch);
  for (int64_t i = 0; i < 4; ++i) {
    const auto row = static_cast<double>(rows[static_cast<size_t>(i)]);
    CHECK(batch->tensor("value")[i][0].item<double>() == row);
    CHECK(batch->tensor("weight")[i].item<double>() == row / 2);
    CHECK((*batch->find<TextRows>("caption"))[static_cast<size_t>(i)] ==
          "row " + std::to_string(rows[static_cast<size_t>(i)]));
    const int64_t length = std::min<int64_t>(rows[static_cast<size_t>(i)] % 3 + 1, 2);
    CHECK(batch->tensor("context_mask")[i].sum().item<double>() == static_cast<double>(length));
    CHECK(batch->tensor("context")[i].sum().item<double>() ==
          static_cast<double>(2 * length) * row);
  }
  CHECK(batch->tensor("context").sizes() == at::IntArrayRef({4, 2, 2}));
}

TEST_CASE("the names a loader produces are those its batches have") {
  Setup setup;
  auto loader = setup.loader(2);
  std::vector<BatchName> expected = {{"caption", false},      {"context", false},
                                     {"context_mask", false}, {"row", false},
                                     {"value", false},        {"weight", false}};
  CHECK((loader->fields() == expected));
  const auto batch = loader->next();
  CHECK(batch->entries.size() == expected.size());
  for (const auto& name : loader->fields()) {
    CHECK(batch->entries.count(name.name) == 1);
  }

  setup.wanted = {"value", "context_mask", "latents"};
  loader = setup.loader(2);
  CHECK(loader->fields().size() == 4);
  CHECK(loader->next()->entries.size() == 4);
  CHECK(setup.fake.wanted ==
        std::vector<std::string>{"value", "context_mask", "latents", "context"});
}

// ---- order

TEST_CASE("any number of workers gives the same batches as none, over several epochs") {
  Setup setup;
  const auto plain = setup.loader(4);
  std::vector<std::shared_ptr<lb_batch>> expected;
  for (int i = 0; i < 17; ++i) {  // five batches an epoch
    expected.push_back(plain->next());
  }
  for (const int64_t workers : {1, 2, 3}) {
    setup.vtable.read_many = workers == 3 ? fake_read_many : nullptr;
    const auto loader = setup.loader(4, workers);
    for (const auto& batch : expected) {
      CHECK(same(*loader->next(), *batch));
    }
    CHECK(loader->position() == plain->position());
  }
  CHECK(setup.fake.shared == 0);
  CHECK(plain->position() == DataPosition{3, 8});

  setup.seed = 6;
  CHECK_FALSE(same(*setup.loader(4, 2)->next(), *expected[0]));
  auto changed = *expected[0];
  changed.put("value", changed.tensor("value") + 1e-6);
  CHECK_FALSE(same(changed, *expected[0]));
}

TEST_CASE("an epoch visits each sample at most once and drops what fills no global batch") {
  Setup setup;
  const auto loader = setup.loader(4, 2);
  const auto rows = rows_of_next(*loader, 5);
  CHECK(std::set<int64_t>(rows.begin(), rows.end()).size() == 20);
  CHECK(loader->position() == DataPosition{0, 20});
  loader->next();
  CHECK(loader->position() == DataPosition{1, 4});

  setup.data.shuffle = false;
  const auto plain = setup.loader(4);
  CHECK(rows_of_next(*plain, 2) == Rows{0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("one batch of 16, two of 8, and ranks that share it hold the same samples") {
  Setup setup;
  setup.fake.length = 48;
  setup.fake.ends = {48};
  const auto whole = rows_of_next(*setup.loader(16), 3);
  CHECK(rows_of_next(*setup.loader(8), 6) == whole);

  setup.mesh = {2, 2, 2, 0};  // four groups of two ranks
  std::vector<Rows> groups;
  for (int64_t rank = 0; rank < 8; ++rank) {
    setup.mesh.rank = rank;
    const auto mine = rows_of_next(*setup.loader(4, rank % 2), 3);
    if (rank % 2 == 0) {
      groups.push_back(mine);
    } else {
      CHECK(mine == groups.back());  // the ranks of a sequence group see the same
    }
  }
  Rows together;
  for (size_t slot = 0; slot < 12; ++slot) {
    for (size_t group = 0; group < 4; ++group) {
      together.push_back(groups[group][slot]);
    }
  }
  CHECK(together == whole);
  std::swap(groups[0], groups[1]);
  CHECK(groups[0][0] != whole[0]);
}

TEST_CASE("each data set instance is told who it is") {
  Setup setup;
  setup.mesh = {1, 2, 2, 3};
  const auto loader = setup.loader(4, 2);
  for (int i = 0; i < 6; ++i) {
    loader->next();
  }
  const std::lock_guard lock(setup.fake.mutex);
  std::set<uint32_t> workers;
  for (const auto& source : setup.fake.sources) {
    CHECK(source.struct_size == sizeof(lb_source));
    CHECK(source.workers == 3);
    CHECK(source.rank == 1);
    CHECK(source.world == 2);
    CHECK(source.seed == 5);
    CHECK(workers.insert(source.worker).second);
  }
  CHECK(workers.count(0) == 1);
  CHECK(setup.fake.sources[0].worker == 0);
}

// ---- position

TEST_CASE("a position continues exactly where the batches ended, read ahead or not") {
  Setup setup;
  for (const int64_t workers : {0, 2}) {
    const auto loader = setup.loader(4, workers);
    std::vector<Rows> rows;
    std::vector<DataPosition> before;
    for (int i = 0; i < 12; ++i) {
      before.push_back(loader->position());
      rows.push_back(rows_of(*loader->next()));
    }
    for (const size_t i : {11u, 0u, 5u, 4u, 7u}) {
      loader->seek(before[i]);
      CHECK(loader->position() == before[i]);
      CHECK(rows_of(*loader->next()) == rows[i]);
      CHECK(rows_of(*setup.loader(4, workers)->next()) == rows[0]);
      if (i + 1 < rows.size()) {
        CHECK(rows_of(*loader->next()) == rows[i + 1]);
      }
    }
  }
}

TEST_CASE("a position goes on under another batch size at the first sample not yet used") {
  Setup setup;
  const auto ones = rows_of_next(*setup.loader(1), 23);
  const auto loader = setup.loader(5);
  loader->seek({0, 12});
  CHECK(rows_of(*loader->next()) == Rows(ones.begin() + 12, ones.begin() + 17));
  loader->seek({0, 19});  // four are left: the next epoch begins
  loader->next();
  CHECK(loader->position() == DataPosition{1, 5});
}

TEST_CASE("a position that the data set does not have is refused") {
  Setup setup;
  const auto loader = setup.loader(4);
  CHECK(has(message_of([&] {
              loader->seek({0, 24});
            }),
            "epoch 0, sample 24; an epoch has 23 samples"));
  message_of([&] { loader->seek({-1, 0}); });
  message_of([&] { loader->seek({0, -1}); });
  loader->seek({0, 23});
  loader->next();
  CHECK(loader->position() == DataPosition{1, 4});
}

TEST_CASE("the fingerprint changes with the number of samples and with the runs alone") {
  Setup setup;
  const auto print = setup.loader(4)->fingerprint();
  CHECK(setup.loader(2, 2)->fingerprint() == print);
  setup.fake.ends[0] = 3;
  CHECK(setup.loader(4)->fingerprint() != print);
  setup.fake.ends = {4, 5, 9, 9, 14, 16, 24};
  setup.fake.length = 24;
  CHECK(setup.loader(4)->fingerprint() != print);
}

// ---- chosen rows and runs

TEST_CASE("rows are given as asked for, repeated ones too, and leave the position alone") {
  Setup setup;
  for (const int64_t workers : {0, 2}) {
    setup.vtable.read_many = workers == 0 ? fake_read_many : nullptr;
    const auto loader = setup.loader(4, workers);
    const auto first = rows_of(*setup.loader(4)->next());
    const auto batch = loader->rows({22, 3, 3, 0});
    CHECK(rows_of(*batch) == Rows{22, 3, 3, 0});
    CHECK(at::equal(batch->tensor("value").select(1, 0),
                    at::tensor(std::vector<float>{22, 3, 3, 0})));
    CHECK(loader->position() == DataPosition{});
    CHECK(rows_of(*loader->next()) == first);
    CHECK(has(message_of([&] {
                loader->rows({1, 23});
              }),
              "row 23 was asked for; it has rows 0 to 22"));
    message_of([&] { loader->rows({-1}); });
    message_of([&] { loader->rows({}); });
  }
}

TEST_CASE("read_many is called once for each run of a batch, with ascending rows") {
  Setup setup;
  setup.vtable.read_many = fake_read_many;
  const auto loader = setup.loader(4);
  loader->rows({10, 3, 0, 15, 1, 9, 10});
  CHECK((setup.fake.runs_read == std::vector<Rows>{{0, 1, 3}, {9, 10}}));
  CHECK(setup.fake.rows_read == Rows{15});  // alone in its run
}

TEST_CASE("without runs every sample is a run of its own") {
  Setup setup;
  setup.vtable.runs = nullptr;
  setup.vtable.read_many = fake_read_many;
  const auto rows = rows_of_next(*setup.loader(4), 5);
  CHECK(std::set<int64_t>(rows.begin(), rows.end()).size() == 20);
  CHECK(setup.fake.runs_read.empty());
}

// ---- faults

TEST_CASE("a sample that cannot be read is named when its turn comes, and can be tried again") {
  Setup setup;
  for (const int64_t workers : {0, 2}) {
    setup.fake.broken_row = -1;
    const auto rows = rows_of_next(*setup.loader(4), 5);
    const int64_t broken = rows[9];  // of the third batch
    setup.fake.broken_row = broken;
    const auto loader = setup.loader(4, workers);
    CHECK(rows_of_next(*loader, 2) == Rows(rows.begin(), rows.begin() + 8));
    for (int attempt = 0; attempt < 2; ++attempt) {
      const auto text = message_of([&] { loader->next(); });
      CHECK(has(text, "the bytes are damaged"));
      CHECK(has(text, "while reading row " + std::to_string(broken) +
                          " of data set 'fake' (training.data)"));
      CHECK(loader->position() == DataPosition{0, 8});
    }
    setup.fake.broken_row = -1;
    CHECK(rows_of_next(*loader, 3) == Rows(rows.begin() + 8, rows.end()));
  }
}

TEST_CASE("read_many names all rows it was asked for") {
  Setup setup;
  setup.vtable.read_many = fake_read_many;
  setup.fake.broken_row = 1;
  const auto loader = setup.loader(4);
  CHECK(has(message_of([&] {
              loader->rows({3, 1, 0});
            }),
            "while reading rows 0, 1, 3 of data set"));
}

TEST_CASE("a worker that cannot open the data set, or finds another one, says so") {
  Setup setup;
  setup.fake.breaks_on_open = true;
  auto loader = setup.loader(4, 2);
  const auto text = message_of([&] { loader->next(); });
  CHECK(has(text, "the disk is gone"));
  CHECK(has(text, "while opening data set 'fake' (training.data)"));
  setup.fake.breaks_on_open = false;
  loader->next();

  loader = setup.loader(4, 2);
  setup.fake.length = 22;
  CHECK(has(message_of([&] { loader->next(); }),
            "had 23 samples when it was opened, and now has 22"));
}

TEST_CASE("an empty or too small data set is refused with its numbers") {
  Setup setup;
  setup.mesh = {1, 2, 1, 0};
  CHECK(has(message_of([&] { setup.loader(12); }),
            "has 23 samples, fewer than one global batch of 24 (2 data-parallel ranks x batches "
            "of 12)"));
  setup.fake.length = 0;
  setup.fake.ends = {};
  CHECK(has(message_of([&] { setup.loader(1); }), "'fake' (training.data) is empty"));
  CHECK(setup.fake.opened == setup.fake.closed);
}

TEST_CASE("a data set that breaks its contract is refused as a plugin fault") {
  Setup setup;
  const auto refused = [&] { return message_of([&] { setup.loader(1)->next(); }, Fault::kPlugin); };
  setup.fake.adds_undeclared = true;
  CHECK(has(refused(), "an entry 'surprise'"));
  setup.fake.adds_undeclared = false;
  setup.fake.ends = {4, 22};
  CHECK(has(refused(), "must ascend to its length, 23; the last one is 22"));
  setup.fake.ends = {4, 3, 23};
  refused();
  setup.fake.length = -2;
  CHECK(has(refused(), "its length is -2"));
  setup.vtable.fields = nullptr;
  CHECK(has(refused(), "lacks open"));
  CHECK(setup.fake.opened == setup.fake.closed);
}

TEST_CASE("a loader that goes while it reads ahead ends its threads and closes every instance") {
  Setup setup;
  setup.fake.delay_us = 2000;
  for (int i = 0; i < 10; ++i) {
    const auto loader = setup.loader(4, 3);
    if (i > 0) {
      loader->next();
    }
    if (i % 3 == 2) {
      loader->seek({1, 4});
    }
  }
  CHECK(setup.fake.opened == setup.fake.closed);
  CHECK(setup.fake.opened > 10);
  CHECK(setup.fake.shared == 0);
}

// ---- streams

TEST_CASE("a stream is read in order, opened again for each epoch, and its rest is dropped") {
  Setup setup;
  setup.fake.is_stream = true;
  setup.fake.length = 10;
  setup.mesh = {1, 2, 1, 1};
  const auto loader = setup.loader(4, 2);
  CHECK(loader->length() == -1);
  // Sample k of rank 1 of 2 is global row 2 k + 1.
  CHECK(rows_of(*loader->next()) == Rows{1, 3, 5, 7});
  CHECK(rows_of(*loader->next()) == Rows{9, 11, 13, 15});
  CHECK(loader->position() == DataPosition{0, 16});
  CHECK(rows_of(*loader->next()) == Rows{1, 3, 5, 7});
  CHECK(loader->position() == DataPosition{1, 8});
  CHECK(setup.fake.opened == 2);
  CHECK(setup.fake.sources[0].seed != setup.fake.sources[1].seed);

  const auto other = setup.loader(4);
  other->seek({1, 8});
  CHECK(rows_of(*other->next()) == Rows{9, 11, 13, 15});
  CHECK(setup.fake.sources.back().seed == setup.fake.sources[1].seed);
  CHECK(has(message_of([&] { loader->rows({0}); }), "is a stream"));

  setup.fake.length = 3;
  CHECK(has(message_of([&] { setup.loader(4)->next(); }), "ended after 3 samples"));
}

// ---- the service of methods and callbacks

TEST_CASE("the service gives prepared batches that the caller owns") {
  Setup setup;
  const auto loader = setup.loader(4);
  int prepared = 0;
  const DataService service(*loader,
                            [&](lb_batch& batch) { batch.put("nth", double(++prepared)); });
  const auto& table = service.table();
  CHECK(table.struct_size == sizeof(lb_data));
  CHECK(table.length(&table) == 23);

  lb_batch* batch = nullptr;
  REQUIRE(table.next(&table, &batch) == nullptr);
  CHECK(batch->number("nth", 0) == 1);
  CHECK(rows_of(*batch) == rows_of(*setup.loader(4)->next()));
  batch_api().destroy(batch);

  const int64_t indices[] = {7, 2};
  REQUIRE(table.rows(&table, indices, 2, &batch) == nullptr);
  CHECK(rows_of(*batch) == Rows{7, 2});
  CHECK(batch->number("nth", 0) == 2);
  batch_api().destroy(batch);
}

TEST_CASE("the service turns faults into statuses and leaves the out argument alone") {
  Setup setup;
  const auto loader = setup.loader(4);
  const DataService service(*loader, {});
  const auto& table = service.table();
  lb_batch* batch = nullptr;
  const int64_t outside = 23;
  auto* status = table.rows(&table, &outside, 1, &batch);
  REQUIRE(status != nullptr);
  CHECK(has(status->message, "row 23"));
  drop_status(status);

  const DataService failing(*loader, [](lb_batch&) { throw Error(Fault::kNumeric, "a hook"); });
  status = failing.table().next(&failing.table(), &batch);
  REQUIRE(status != nullptr);
  CHECK(status->code == LB_NONFINITE);
  drop_status(status);
  CHECK(batch == nullptr);
}

}  // namespace
}  // namespace limbeck
