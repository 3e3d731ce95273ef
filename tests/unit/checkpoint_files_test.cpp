// SPDX-License-Identifier: Apache-2.0
// Checkpoints as folders: which is complete, which is the latest, what replaces and removes what.
// No libtorch.
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <unistd.h>

#include "core/base/error.hpp"
#include "core/base/files.hpp"
#include "core/checkpoint/folders.hpp"
#include "core/checkpoint/saver.hpp"
#include "core/checkpoint/write.hpp"
#include "core/dcp/reader.hpp"

#include <doctest/doctest.h>

using namespace limbeck;

namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "limbeck_checkpoints_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const fs::path& path() const { return path_; }
  fs::path operator/(const std::string& name) const { return path_ / name; }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(path_)) {
      all.push_back(entry.path().filename().string());
    }
    std::sort(all.begin(), all.end());
    return all;
  }

 private:
  fs::path path_;
};

// One tensor "a" of these numbers.
Snapshot snapshot_of(const std::vector<float>& numbers) {
  Snapshot snapshot;
  SavedTensor tensor;
  tensor.name = "a";
  tensor.type = find_dcp_type("float32");
  tensor.sizes = {static_cast<int64_t>(numbers.size())};
  tensor.box = {{0}, tensor.sizes};
  const auto copy = std::make_shared<std::vector<float>>(numbers);
  tensor.data = {copy, reinterpret_cast<const std::byte*>(copy->data())};
  snapshot.tensors.push_back(tensor);
  snapshot.values.emplace_back("n", DcpValue{int64_t{7}});
  return snapshot;
}

CheckpointText text_of(int64_t step) {
  CheckpointText text;
  text.resolved_manifest = "[run]\n";
  text.record.step = step;
  text.record.saved = "2026-01-31T12:00:00Z";
  text.record.facts = {{"run_id", "x"}};
  return text;
}

fs::path write(const Folder& folder, int64_t step, float first = 1) {
  return write_checkpoint(folder.path(), snapshot_of({first, 2, 3}), text_of(step));
}

float first_of(const fs::path& checkpoint) {
  std::vector<float> numbers(3);
  DcpReader(checkpoint / kDcpFolder).read("a", reinterpret_cast<std::byte*>(numbers.data()));
  return numbers[0];
}

void flip(const fs::path& path, uint64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const char byte = static_cast<char>(file.get() ^ 1);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(byte);
}

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    CHECK((error.fault() == Fault::kData));
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("checkpoint folders: names") {
  CHECK(checkpoint_name(40) == "checkpoint-40");
  CHECK(step_of_checkpoint("checkpoint-40") == 40);
  for (const char* other :
       {"checkpoint-", "checkpoint-040", "checkpoint--1", "checkpoint-4.unfinished",
        "checkpoint-4x", "Checkpoint-4", "checkpoint-99999999999999999999", ""}) {
    CAPTURE(other);
    CHECK(step_of_checkpoint(other) == -1);
  }
}

TEST_CASE("checkpoint folders: what was written is there, complete, and by number") {
  const Folder folder;
  for (const int64_t step : {9, 1000, 10, 100}) {
    const auto path = write(folder, step);
    CHECK(path == folder / checkpoint_name(step));
    CHECK(verify_checkpoint(path).step == step);
  }
  std::vector<int64_t> steps;
  for (const auto& found : list_checkpoints(folder.path())) {
    steps.push_back(found.step);
  }
  CHECK(steps == std::vector<int64_t>{1000, 100, 10, 9});
  CHECK(latest_checkpoint(folder.path()).folder == folder / "checkpoint-1000");
  CHECK(list_checkpoints(folder / "nothing").empty());
  const auto record = open_checkpoint(folder / "checkpoint-9");
  CHECK(record.saved == "2026-01-31T12:00:00Z");
  CHECK(record.facts.at("run_id") == "x");
  REQUIRE(record.files.size() == 3);
}

TEST_CASE("checkpoint folders: every file that is damaged is noticed, and older ones are taken") {
  const Folder folder;
  write(folder, 10);
  const std::vector<std::string> files = {"limbeck.json", "COMPLETE", "config.resolved.toml",
                                          "dcp/.metadata", "dcp/__0_0.distcp"};
  for (const auto& file : files) {
    CAPTURE(file);
    const auto damage = [&](const std::function<void(const fs::path&)>& how) {
      const auto path = write(folder, 20);
      how(path / file);
      CHECK_FALSE(message_of([&] { verify_checkpoint(path); }).empty());
      const auto latest = latest_checkpoint(folder.path());
      CHECK(latest.folder == folder / "checkpoint-10");
      REQUIRE(latest.skipped.size() == 1);
      CHECK(contains(latest.skipped[0], "checkpoint-20"));
      CHECK(resolve_checkpoint("latest", folder.path()) == folder / "checkpoint-10");
      const auto refused = message_of([&] { resolve_checkpoint(path.string(), folder.path()); });
      CHECK(contains(refused, "the newest complete checkpoint beside it is"));
      CHECK(contains(refused, "checkpoint-10"));
      fs::remove_all(path);
    };
    damage([](const fs::path& path) { fs::resize_file(path, 0); });
    damage([](const fs::path& path) { fs::resize_file(path, fs::file_size(path) / 2); });
    damage([](const fs::path& path) { fs::remove(path); });
    for (const double place : {0.0, 0.3, 0.7, 1.0}) {
      damage([&](const fs::path& path) {
        const auto last = static_cast<double>(fs::file_size(path) - 1);
        flip(path, static_cast<uint64_t>(place * last));
      });
    }
  }
}

TEST_CASE("checkpoint folders: what --resume-from-checkpoint takes") {
  const Folder folder;
  const auto resolve = [&](const std::string& argument) {
    return resolve_checkpoint(argument, folder.path());
  };
  CHECK(resolve("latest") == std::nullopt);  // nothing was saved yet
  CHECK(contains(message_of([&] { resolve(folder / "checkpoint-5"); }), "there is no checkpoint"));

  const auto path = write(folder, 5);
  write(folder, 7);
  for (const auto& argument : {path, path / "", path / "dcp", path / "dcp" / "", path / "." / ""}) {
    CAPTURE(argument);
    CHECK(resolve(argument.string()) == path);
  }
  CHECK(resolve(folder.path().string()) == folder / "checkpoint-7");

  // Renamed by hand: its name is no longer what it is.
  fs::rename(folder / "checkpoint-7", folder / "checkpoint-70");
  CHECK(contains(message_of([&] { resolve(folder / "checkpoint-70"); }),
                 "the checkpoint of step 7 under another name"));
  fs::rename(folder / "checkpoint-70", folder / "best");
  CHECK(resolve(folder / "best") == folder / "best");

  const Folder exports;
  fs::create_directories(exports / "export/student");
  const auto said = message_of([&] { resolve_checkpoint("latest", exports.path()); });
  CHECK(contains(said, "there is no complete checkpoint"));
  CHECK(contains(said, "export/student cannot be resumed"));
  CHECK(contains(message_of([&] { resolve((exports / "export").string()); }),
                 "is not a checkpoint of limbeck"));

  const Folder damaged;
  fs::remove(write(damaged, 3) / "COMPLETE");
  CHECK(contains(message_of([&] { resolve_checkpoint("latest", damaged.path()); }),
                 "it is not complete: COMPLETE is missing"));
}

TEST_CASE("checkpoint files: one of the same step is replaced") {
  const Folder folder;
  write(folder, 5, 1);
  const auto path = write(folder, 5, 4);
  CHECK(first_of(path) == 4);
  CHECK(folder.names() == std::vector<std::string>{"checkpoint-5"});
}

TEST_CASE("checkpoint files: the limit keeps the newest by number") {
  const auto left = [](int64_t limit) {
    const Folder folder;
    for (const int64_t step : {9, 10, 100, 1000}) {
      const auto newest = write(folder, step);
      remove_old_checkpoints(folder.path(), limit, newest);
    }
    return folder.names();
  };
  using Names = std::vector<std::string>;
  CHECK(left(0) == Names{"checkpoint-10", "checkpoint-100", "checkpoint-1000", "checkpoint-9"});
  CHECK(left(1) == Names{"checkpoint-1000"});
  CHECK(left(2) == Names{"checkpoint-100", "checkpoint-1000"});
  CHECK(left(9).size() == 4);

  // The one that was just written stays, even if others have higher numbers.
  const Folder folder;
  write(folder, 100);
  write(folder, 200);
  const auto newest = write(folder, 50);
  fs::create_directories(folder / "checkpoint-best");
  remove_old_checkpoints(folder.path(), 1, newest);
  CHECK(folder.names() == Names{"checkpoint-50", "checkpoint-best"});
}

TEST_CASE("checkpoint files: what a killed run left behind is removed, nothing else") {
  const Folder folder;
  write(folder, 5);
  fs::create_directories(folder / "checkpoint-6.unfinished/dcp");
  fs::create_directories(folder / "other.unfinished");
  remove_unfinished_checkpoints(folder.path());
  CHECK(folder.names() == std::vector<std::string>{"checkpoint-5", "other.unfinished"});
}

TEST_CASE("checkpoint files: later ones are set aside, as often as needed") {
  const Folder folder;
  for (int time = 0; time < 3; ++time) {
    write(folder, 5);
    write(folder, 6);
    CHECK(set_aside_later_checkpoints(folder.path(), 5).size() == 1);
  }
  CHECK(folder.names() == std::vector<std::string>{"checkpoint-5", "checkpoint-6.abandoned",
                                                   "checkpoint-6.abandoned-2",
                                                   "checkpoint-6.abandoned-3"});
}

TEST_CASE("checkpoint files: a full disk leaves everything as it was and says so") {
  const Folder folder;
  write(folder, 5, 1);
  // A file may not grow beyond this, as on a full disk.
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  auto* handler = std::signal(SIGXFSZ, SIG_IGN);
  std::string said;
  for (const rlim_t limit : {rlim_t{0}, rlim_t{100}, rlim_t{2000}}) {
    rlimit small = before;
    small.rlim_cur = limit;
    setrlimit(RLIMIT_FSIZE, &small);
    said = message_of([&] {
      write_checkpoint(folder.path(), snapshot_of(std::vector<float>(4096, 1.0F)), text_of(6));
    });
    setrlimit(RLIMIT_FSIZE, &before);
    CHECK(contains(said, "__0_0.distcp"));
    CHECK(contains(said, "File too large"));
    CHECK(folder.names() == std::vector<std::string>{"checkpoint-5"});
  }
  std::signal(SIGXFSZ, handler);
  CHECK(first_of(folder / "checkpoint-5") == 1);
}

TEST_CASE("checkpoint files: a folder that cannot be made is named") {
  const Folder folder;
  std::ofstream(folder / "file") << "x";
  const auto said =
      message_of([&] { write_checkpoint(folder / "file", snapshot_of({1}), text_of(1)); });
  CHECK(contains(said, "cannot create the folder"));
  CHECK(contains(said, "Not a directory"));
}

TEST_CASE("checkpoint saver: one save at a time, each with its outcome") {
  const Folder folder;
  CheckpointSaver saver(folder.path(), 2);
  CHECK_FALSE(saver.poll().has_value());
  CHECK_FALSE(saver.wait().has_value());
  for (const int64_t step : {1, 2, 3}) {
    saver.start(snapshot_of({static_cast<float>(step)}), text_of(step));
    CHECK_THROWS_AS(saver.start(snapshot_of({0}), text_of(9)), Error);
    const auto outcome = saver.wait();
    REQUIRE(outcome.has_value());
    CHECK(outcome->step == step);
    CHECK(outcome->bytes == 4);
    CHECK_FALSE(outcome->error.has_value());
    CHECK(outcome->folder == folder / checkpoint_name(step));
    CHECK_FALSE(saver.is_busy());
  }
  CHECK(folder.names() == std::vector<std::string>{"checkpoint-2", "checkpoint-3"});
}

TEST_CASE(
    "checkpoint saver: a save that fails is an outcome with the reason, and the next one works") {
  const Folder folder;
  CheckpointSaver saver(folder / "out", 0);
  std::ofstream(folder / "out") << "in the way";
  saver.start(snapshot_of({1}), text_of(1));
  const auto failed = saver.wait();
  REQUIRE(failed->error.has_value());
  CHECK(contains(failed->error->what(), "Not a directory"));
  fs::remove(folder / "out");
  saver.start(snapshot_of({1}), text_of(1));
  CHECK_FALSE(saver.wait()->error.has_value());
}

TEST_CASE("checkpoint record: what is not one says why") {
  const auto message = [](const std::string& text) {
    return message_of([&] { CheckpointRecord::from_json(text, "x/limbeck.json"); });
  };
  CheckpointRecord record;
  record.step = 3;
  record.saved = "now";
  record.files = {{"dcp/a", {5, 0x1234}}};
  record.facts = {{"roles", {{"r", 1}}}};
  const auto text = record.to_json();
  const auto back = CheckpointRecord::from_json(text, "x");
  CHECK(back.step == 3);
  CHECK(back.files.at(0).path == "dcp/a");
  CHECK(back.files.at(0).digest.xxh3 == 0x1234);
  CHECK(back.facts == record.facts);
  CHECK(back.to_json() == text);

  const auto changed = [&](const std::string& from, const std::string& to) {
    auto other = text;
    other.replace(other.find(from), from.size(), to);
    return message(other);
  };
  CHECK(contains(message("{"), "x/limbeck.json"));
  CHECK(contains(message("[]"), "is not the record of a checkpoint"));
  CHECK(contains(changed("limbeck.checkpoint", "other"), "is not the record of a checkpoint"));
  CHECK(contains(changed("\"version\": 1", "\"version\": 2"),
                 "has format version 2; this limbeck reads version 1"));
  CHECK(contains(changed("\"step\": 3", "\"step\": -3"), "\"step\" is not a number from 0"));
  CHECK(contains(changed("\"step\"", "\"stop\""), "has no \"step\""));
  CHECK(contains(changed("dcp/a", "../a"), "names a file outside the checkpoint"));
  CHECK(contains(changed("dcp/a", "/a"), "names a file outside the checkpoint"));
  CHECK(contains(changed("0000000000001234", "000000000000123"), "16 hexadecimal digits"));
  CHECK(contains(changed("0000000000001234", "000000000000123g"), "16 hexadecimal digits"));
}
