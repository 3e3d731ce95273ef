// SPDX-License-Identifier: Apache-2.0
// TensorBoard's files, byte by byte, with a reader that shares nothing with the writer.
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "basics/event_file.hpp"
#include "media/gif.hpp"
#include "media/png.hpp"

#include <doctest/doctest.h>

namespace {

namespace fs = std::filesystem;

class EventFolder {
 public:
  EventFolder() {
    std::string name = (fs::temp_directory_path() / "limbeck_events_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~EventFolder() { fs::remove_all(path_); }
  EventFolder(const EventFolder&) = delete;
  EventFolder& operator=(const EventFolder&) = delete;
  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

std::string all_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// CRC-32C bit by bit, as its definition says.
uint32_t slow_masked_crc(const std::string& bytes) {
  uint32_t crc = 0xFFFFFFFFU;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc & 1U) != 0 ? crc >> 1 ^ 0x82F63B78U : crc >> 1;
    }
  }
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xA282EAD8U;
}

template <class T>
T number_at(const std::string& bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

// The messages of a file; an error for bytes that are not a chain of records.
std::vector<std::string> records(const std::string& bytes) {
  std::vector<std::string> result;
  for (size_t at = 0; at < bytes.size();) {
    const auto length = number_at<uint64_t>(bytes, at);
    REQUIRE(bytes.size() >= at + 16 + length);
    CHECK(number_at<uint32_t>(bytes, at + 8) == slow_masked_crc(bytes.substr(at, 8)));
    result.push_back(bytes.substr(at + 12, length));
    CHECK(number_at<uint32_t>(bytes, at + 12 + length) == slow_masked_crc(result.back()));
    at += 16 + length;
  }
  return result;
}

// A protobuf message taken apart: number of the field -> its contents, in order.
struct Message {
  explicit Message(const std::string& bytes) {
    size_t at = 0;
    const auto varint = [&] {
      uint64_t value = 0;
      for (int shift = 0;; shift += 7) {
        const auto byte = static_cast<uint8_t>(bytes.at(at++));
        value |= static_cast<uint64_t>(byte & 0x7FU) << shift;
        if (byte < 0x80) {
          return value;
        }
      }
    };
    while (at < bytes.size()) {
      const auto key = varint();
      const auto field = static_cast<int>(key >> 3);
      size_t size = 0;
      switch (key & 7U) {
        case 0:
          numbers[field] = static_cast<int64_t>(varint());
          continue;
        case 1:
          size = 8;
          break;
        case 2:
          size = varint();
          break;
        case 5:
          size = 4;
          break;
        default:
          throw std::runtime_error("bad wire type");
      }
      parts[field].push_back(bytes.substr(at, size));
      at += size;
    }
  }
  Message inner(int field, size_t index = 0) const { return Message(parts.at(field).at(index)); }
  std::string text(int field) const { return parts.at(field).at(0); }

  std::map<int, int64_t> numbers;
  std::map<int, std::vector<std::string>> parts;
};

// Value number `index` of the summary in a record.
Message value_of(const std::string& record, size_t index = 0) {
  return Message(record).inner(5).inner(1, index);
}

}  // namespace

TEST_CASE("events: CRC-32C and its mask") {
  CHECK(basics::crc32c("123456789") == 0xE3069283U);
  CHECK(basics::crc32c("") == 0);
  CHECK(basics::masked_crc32c("123456789") == slow_masked_crc("123456789"));
  CHECK(basics::masked_crc32c("123456789") != basics::masked_crc32c("123456780"));
}

TEST_CASE("events: a file begins with its version and says from where its steps count") {
  const EventFolder folder;
  const basics::EventFile file(folder / "deep/er", 11, 1700000000.5);
  const auto bytes = all_bytes(file.path());
  const char head[] = {0x18, 0, 0, 0, 0, 0, 0, 0, '\xa3', 0x7f, 0x4b, 0x22, 0x09};
  CHECK(bytes.substr(0, sizeof(head)) == std::string(head, sizeof(head)));
  CHECK(number_at<double>(bytes, 13) == 1700000000.5);
  CHECK(bytes.substr(21, 15) ==
        "\x1a\x0d"
        "brain.Event:2");

  const auto all = records(bytes);
  REQUIRE(all.size() == 2);
  const Message restart(all[1]);
  CHECK(restart.numbers.at(2) == 11);
  CHECK(restart.inner(7).numbers.at(1) == 1);

  const auto name = file.path().filename().string();
  CHECK(name.find("events.out.tfevents.1700000000.") == 0);
  CHECK(name.find("." + std::to_string(getpid()) + ".") != std::string::npos);
}

TEST_CASE("events: two files of one second have different names, and a fresh run drops all") {
  const EventFolder folder;
  const basics::EventFile first(folder / "", 1, 1700000000);
  const basics::EventFile second(folder / "", 1, 1700000000);
  CHECK(first.path() != second.path());
  CHECK(Message(records(all_bytes(first.path())).at(1)).numbers.at(2) == 0);
}

TEST_CASE("events: numbers") {
  const EventFolder folder;
  basics::EventFile file(folder / "", 1, 0);
  file.scalars(300, 2.25, {{"loss", 0.25}, {"lr/student", 1e-3}});
  // Without closing: every event reaches the file at once.
  const auto record = records(all_bytes(file.path())).at(2);
  const Message event(record);
  CHECK(number_at<double>(event.text(1), 0) == 2.25);
  CHECK(event.numbers.at(2) == 300);
  CHECK(value_of(record, 0).text(1) == "loss");
  CHECK(number_at<float>(value_of(record, 0).text(2), 0) == 0.25F);
  CHECK(value_of(record, 1).text(1) == "lr/student");
  CHECK(number_at<float>(value_of(record, 1).text(2), 0) == 1e-3F);
}

TEST_CASE("events: steps beyond 32 bits and below zero") {
  const EventFolder folder;
  basics::EventFile file(folder / "", 1, 0);
  file.scalars(int64_t{1} << 40, 0, {{"x", 1}});
  file.scalars(-1, 0, {{"x", 1}});
  const auto all = records(all_bytes(file.path()));
  CHECK(Message(all.at(2)).numbers.at(2) == int64_t{1} << 40);
  CHECK(Message(all.at(3)).numbers.at(2) == -1);
}

TEST_CASE("events: pictures with size and caption, the file's bytes unchanged") {
  const EventFolder folder;
  const media::Image image(300, 7, media::Rgb{9, 8, 7});
  media::write_png(folder / "a.png", image);
  media::write_gif(folder / "b.gif", {image, image}, 8);
  basics::EventFile file(folder / "events", 1, 0);
  file.picture(5, 1.5, "validation", basics::read_picture(folder / "a.png"), "a **digit**");
  file.picture(5, 1.5, "animation", basics::read_picture(folder / "b.gif"), "");
  const auto all = records(all_bytes(file.path()));

  const auto still = value_of(all.at(2));
  CHECK(still.text(1) == "validation");
  CHECK(still.inner(4).numbers.at(1) == 7);
  CHECK(still.inner(4).numbers.at(2) == 300);
  CHECK(still.inner(4).numbers.at(3) == 3);
  CHECK((still.inner(4).text(4) == all_bytes(folder / "a.png")));
  CHECK(still.inner(9).text(3) == "a **digit**");

  const auto animation = value_of(all.at(3));
  CHECK(animation.inner(4).numbers.at(1) == 7);
  CHECK(animation.inner(4).numbers.at(2) == 300);
  CHECK((animation.inner(4).text(4) == all_bytes(folder / "b.gif")));
  CHECK(animation.inner(9).inner(1).text(1) == "images");
  CHECK(animation.inner(9).parts.count(3) == 0);
}

TEST_CASE("events: text") {
  const EventFolder folder;
  basics::EventFile file(folder / "", 1, 0);
  file.text(0, 0, "manifest", "    [run]\n");
  const auto value = value_of(records(all_bytes(file.path())).at(2));
  CHECK(value.text(1) == "manifest");
  CHECK(value.inner(8).numbers.at(1) == 7);  // DT_STRING
  CHECK(value.inner(8).inner(2).inner(2).numbers.at(1) == 1);
  CHECK(value.inner(8).text(8) == "    [run]\n");
  CHECK(value.inner(9).inner(1).text(1) == "text");
}

TEST_CASE("events: what is no picture is refused with its path") {
  const EventFolder folder;
  std::ofstream(folder / "c.png") << "not a picture, but long enough to have a header";
  const auto said = [](const fs::path& path) -> std::string {
    try {
      basics::read_picture(path);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  };
  CHECK(said(folder / "c.png") ==
        "'" + (folder / "c.png").string() + "' is neither a PNG nor a GIF");
  CHECK(said(folder / "d.png") ==
        "cannot read '" + (folder / "d.png").string() + "': No such file or directory");
}
