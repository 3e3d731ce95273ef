// SPDX-License-Identifier: Apache-2.0
// What the basics plugin computes without a host: lines of JSON, pictures of clips.
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "basics/clips.hpp"
#include "basics/json_lines.hpp"

#include <doctest/doctest.h>

namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "limbeck_basics_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

// While it lives, no file of this process grows beyond `bytes`.
class LowFileLimit {
 public:
  explicit LowFileLimit(rlim_t bytes) {
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit low = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &low);
  }
  ~LowFileLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  LowFileLimit(const LowFileLimit&) = delete;
  LowFileLimit& operator=(const LowFileLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

std::string content_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::vector<nlohmann::json> objects_of(const fs::path& path) {
  std::vector<nlohmann::json> objects;
  std::istringstream text(content_of(path));
  for (std::string line; std::getline(text, line);) {
    objects.push_back(nlohmann::json::parse(line));
  }
  return objects;
}

}  // namespace

// ---- lines of JSON

TEST_CASE("texts and numbers become JSON that reads back to them") {
  for (const std::string text : {"plain", "a \"quoted\" \\ path", "line\nbreak\ttab\x01", "käse"}) {
    CHECK(nlohmann::json::parse(basics::json_string(text)).get<std::string>() == text);
  }
  for (const double value : {0.0, -1.5, 0.1, 1e-300, 3.0, 123456789.0, 1.7976931348623157e308}) {
    CHECK(nlohmann::json::parse(basics::json_number(value)).get<double>() == value);
  }
  CHECK(basics::json_number(std::nan("")) == "\"NaN\"");
  CHECK(basics::json_number(-std::numeric_limits<double>::infinity()) == "\"-Infinity\"");
}

TEST_CASE("metrics and files are one object a line") {
  const Folder folder;
  const fs::path path = folder / "metrics.jsonl";
  basics::JsonLines lines(path, 1);
  lines.scalars(1, 1234.5, {{"loss", 0.25}, {"grad_norm", std::nan("")}, {"time", 7}});
  lines.file(1, 1235.0, "validation", "image/png", "/a \"b\"/c.png", "digit 3");
  // Without closing: every line reaches the file at once.
  const auto objects = objects_of(path);
  REQUIRE(objects.size() == 2);
  CHECK(objects[0]["step"] == 1);
  CHECK(objects[0]["time"] == 1234.5);
  CHECK(objects[0]["loss"] == 0.25);
  CHECK(objects[0]["grad_norm"] == "NaN");
  CHECK(objects[0]["metric.time"] == 7);
  CHECK(objects[1]["file"] == "/a \"b\"/c.png");
  CHECK(objects[1]["caption"] == "digit 3");
  CHECK(content_of(path).find("{\"step\":1,\"time\":1234.500,\"loss\":0.25,") == 0);
}

TEST_CASE("a new run begins an empty file") {
  const Folder folder;
  const fs::path path = folder / "metrics.jsonl";
  { basics::JsonLines(path, 1).scalars(1, 0.0, {{"loss", 1}}); }
  { basics::JsonLines(path, 1).scalars(1, 0.0, {{"loss", 2}}); }
  const auto objects = objects_of(path);
  REQUIRE(objects.size() == 1);
  CHECK(objects[0]["loss"] == 2);
}

TEST_CASE("a resumed run keeps the lines of its past and drops those of another future") {
  const Folder folder;
  const fs::path path = folder / "metrics.jsonl";
  {
    basics::JsonLines lines(path, 1);
    for (int step = 1; step <= 12; ++step) {
      lines.scalars(step, 0.0, {{"loss", step}});
    }
  }
  { std::ofstream(path, std::ios::app) << "{\"step\":3,\"lo"; }  // torn by a crash
  { basics::JsonLines(path, 11).scalars(11, 0.0, {{"loss", -11}}); }
  const auto objects = objects_of(path);
  REQUIRE(objects.size() == 11);
  for (int k = 0; k < 10; ++k) {
    CHECK(objects[static_cast<size_t>(k)]["step"] == k + 1);
  }
  CHECK(objects[10]["loss"] == -11);
  // A file that is not there is no obstacle.
  { basics::JsonLines(folder / "other.jsonl", 5).scalars(5, 0.0, {}); }
  CHECK(objects_of(folder / "other.jsonl").size() == 1);
}

TEST_CASE("only complete lines have a step") {
  CHECK(basics::step_of_line("{\"step\":17,\"time\":1}") == 17);
  CHECK(basics::step_of_line("{\"step\":17,\"time\":1") == -1);
  CHECK(basics::step_of_line("{\"step\":}") == -1);
  CHECK(basics::step_of_line("") == -1);
  CHECK(basics::step_of_line("{\"steps\":17,\"time\":1}") == -1);
}

TEST_CASE("a folder that is missing is an error with path and reason") {
  const Folder folder;
  const fs::path path = folder / "missing/metrics.jsonl";
  try {
    basics::JsonLines lines(path, 1);
    FAIL("opened");
  } catch (const std::runtime_error& error) {
    CHECK(error.what() == "cannot create '" + path.string() + "': No such file or directory");
  }
}

TEST_CASE("where no more can be written, complete lines stay and writing can go on later") {
  const Folder folder;
  const fs::path path = folder / "metrics.jsonl";
  basics::JsonLines lines(path, 1);
  int written = 0;
  {
    // A limit on the size of files cuts a line in the middle, as a full disk does.
    const LowFileLimit limit(200);
    std::string reason;
    try {
      for (int step = 1; step <= 100; ++step) {
        lines.scalars(step, 0.0, {{"loss", 0.5}});
        ++written;
      }
    } catch (const std::runtime_error& error) {
      reason = error.what();
    }
    CHECK(reason.find("cannot append to '" + path.string() + "': File too large") == 0);
  }
  CHECK(written > 0);
  CHECK(written < 100);
  CHECK(objects_of(path).size() == static_cast<size_t>(written));
  lines.scalars(100, 0.0, {{"loss", 0.25}});
  CHECK(objects_of(path).size() == static_cast<size_t>(written) + 1);
}

// ---- pictures of clips

namespace {

// A clip whose frame k has the grey value k.
basics::Clip counting(int frames, int width, int height) {
  basics::Clip clip;
  for (int k = 0; k < frames; ++k) {
    const auto value = static_cast<uint8_t>(k);
    clip.emplace_back(width, height, media::Rgb{value, value, value});
  }
  return clip;
}

}  // namespace

TEST_CASE("a contact sheet shows frames from the first to the last") {
  const media::Image all = basics::contact_sheet({counting(4, 2, 2)}, 1);
  // Sheet: gap 3, strip with gap 1 around tiles of 2.
  for (int k = 0; k < 4; ++k) {
    CHECK(all.at(4 + 3 * k, 4).r == k);
  }
  const media::Image some = basics::contact_sheet({counting(81, 2, 2)}, 1);
  CHECK(some.width == 3 + (1 + 8 * 3) + 3);
  CHECK(some.at(4, 4).r == 0);
  CHECK(some.at(4 + 3 * 7, 4).r == 80);
  CHECK(basics::contact_sheet({counting(1, 2, 2)}, 1).at(4, 4).r == 0);
}

TEST_CASE("clips run side by side, a short one stays at its end") {
  const basics::Clip clip = basics::side_by_side({counting(2, 4, 4), counting(3, 4, 4)}, 2);
  REQUIRE(clip.size() == 3);
  CHECK(clip[0].width == 3 + 2 * 7);
  CHECK(clip[1].at(3, 3).r == 1);
  CHECK(clip[1].at(10, 3).r == 1);
  CHECK(clip[2].at(3, 3).r == 1);
  CHECK(clip[2].at(10, 3).r == 2);
}

TEST_CASE("a prompt becomes a part of a file name") {
  CHECK(basics::file_stem("digit 3") == "digit_3");
  CHECK(basics::file_stem("  A Cat/Dog -- ") == "a_cat_dog");
  CHECK(basics::file_stem("../..") == "clip");
  CHECK(basics::file_stem("") == "clip");
  CHECK(basics::file_stem(std::string(300, 'x')).size() == 40);
}
