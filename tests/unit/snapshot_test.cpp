// SPDX-License-Identifier: Apache-2.0
// Tensors to names and back: nothing that differs is taken, and everything that differs is told at
// once.
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>

#include <unistd.h>

#include <ATen/ATen.h>

#include "core/base/error.hpp"
#include "core/checkpoint/folders.hpp"
#include "core/checkpoint/state.hpp"
#include "core/train/component_state.hpp"

#include <doctest/doctest.h>

using namespace limbeck;

namespace {

class SavedFolder {
 public:
  explicit SavedFolder(const std::function<void(SnapshotWriter&)>& fill) {
    std::string name =
        (std::filesystem::temp_directory_path() / "limbeck_snapshot_XXXXXX").string();
    root_ = mkdtemp(name.data());
    SnapshotWriter writer;
    fill(writer);
    CheckpointText text;
    text.record.step = 1;
    checkpoint = write_checkpoint(root_, writer.take(), text);
  }
  ~SavedFolder() { std::filesystem::remove_all(root_); }
  SavedFolder(const SavedFolder&) = delete;
  SavedFolder& operator=(const SavedFolder&) = delete;

  std::filesystem::path checkpoint;

 private:
  std::filesystem::path root_;
};

}  // namespace

TEST_CASE("snapshot: every type of number comes back with its bits") {
  const auto types = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong,
                      at::kInt,   at::kShort,  at::kChar, at::kByte,     at::kBool};
  const auto value_of = [](at::ScalarType type) {
    return (at::arange(24, at::kLong) - 12).view({2, 3, 4}).to(type);
  };
  const SavedFolder saved([&](SnapshotWriter& writer) {
    for (const auto type : types) {
      writer.tensor(c10::toString(type), value_of(type));
    }
    writer.tensor("scalar", at::scalar_tensor(3.5));
    writer.tensor("empty", at::empty({0, 4}));
    writer.tensor("nan", at::full({2}, std::numeric_limits<double>::quiet_NaN()));
  });
  SnapshotReader reader(saved.checkpoint);
  for (const auto type : types) {
    CAPTURE(c10::toString(type));
    const auto back = reader.tensor(c10::toString(type));
    CHECK((back.scalar_type() == type));
    CHECK(at::equal(back, value_of(type)));
  }
  CHECK(reader.tensor("scalar").item<float>() == 3.5);
  CHECK((reader.tensor("empty").sizes() == at::IntArrayRef({0, 4})));
  CHECK(reader.tensor("nan").isnan().all().item<bool>());
}

TEST_CASE("snapshot: what is wanted is filled in place, also where it is not row-major") {
  const auto value = at::arange(12, at::kFloat).view({3, 4});
  const SavedFolder saved([&](SnapshotWriter& writer) { writer.tensor("a", value); });
  auto row_major = at::zeros({3, 4});
  auto transposed = at::zeros({4, 3}).t();
  SnapshotReader first(saved.checkpoint);
  first.want("a", row_major);
  first.finish();
  CHECK(at::equal(row_major, value));
  SnapshotReader second(saved.checkpoint);
  second.want("a", transposed);
  second.finish();
  CHECK(at::equal(transposed, value));
}

TEST_CASE("snapshot: one message has all differences, and nothing was changed") {
  const SavedFolder saved([](SnapshotWriter& writer) {
    writer.tensor("kept", at::ones({2}));
    writer.tensor("renamed.before", at::ones({2}));
    writer.tensor("shape", at::ones({2, 3}));
    writer.tensor("type", at::ones({2}, at::kDouble));
    writer.value("extra", {int64_t{1}});
    writer.tensor("optional.a", at::ones({2}));
  });
  const auto kept = at::zeros({2});
  SnapshotReader reader(saved.checkpoint);
  reader.want("kept", kept);
  reader.want("renamed.after", at::zeros({2}));
  reader.want("shape", at::zeros({3, 2}));
  reader.want("type", at::zeros({2}));
  reader.leave("optional.");
  std::string message;
  try {
    reader.finish();
  } catch (const Error& error) {
    CHECK((error.fault() == Fault::kData));
    message = error.what();
  }
  for (const char* part :
       {"checkpoint-1", "renamed.after", "renamed.before", "extra",
        "shape: shape [2, 3], expected [3, 2]", "type: type float64, expected Float"}) {
    CHECK_MESSAGE(message.find(part) != std::string::npos, message);
  }
  CHECK(message.find("optional") == std::string::npos);
  CHECK(at::equal(kept, at::zeros({2})));
}

TEST_CASE("snapshot: a name can be taken once") {
  SnapshotWriter writer;
  writer.tensor("a", at::ones({1}));
  CHECK_THROWS_AS(writer.value("a", {int64_t{1}}), Error);
  CHECK_THROWS_AS(writer.tensor("b", at::ones({2, 3}).t()), Error);
}

TEST_CASE("snapshot: the state of a component comes back with every bit") {
  MemoryState state;
  state.put("count", int64_t{-5});
  state.put("scale", 0.1);
  state.put("whole", 2.0);  // a number that looks like an integer stays a number
  state.put("bytes", std::string("a\0b\xff", 4));
  state.put("none", std::string());
  state.put("deep.tensor", at::arange(6, at::kFloat).view({2, 3}).t());
  lb_batch inner;
  inner.put("a tensor", at::ones({2}, at::kBFloat16));
  inner.put("rows", TextRows{"", "\xc3\xa9t\xc3\xa9", "two\nlines"});
  lb_batch batch;
  batch.put("inner", std::make_shared<const lb_batch>(inner));
  batch.put("number", -0.0);
  batch.put("other", at::zeros({0}));
  state.put("batch", MemoryState::Batch{batch});
  state.put("empty", MemoryState::Batch{});

  const SavedFolder saved([&](SnapshotWriter& writer) { put_state(writer, "c.x/", state); });
  SnapshotReader reader(saved.checkpoint);
  MemoryState back;
  get_state(reader, "c.x/", back);
  CHECK(back.difference(state).empty());
  CHECK(back.bad_names().empty());
  CHECK_NOTHROW(reader.finish());  // every name was read

  MemoryState other;
  get_state(reader, "c.y/", other);
  CHECK(other.is_empty());
}
