// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <doctest/doctest.h>

#include "core/base/error.hpp"
#include "core/base/files.hpp"

namespace {

namespace fs = std::filesystem;
using limbeck::read_file;
using limbeck::write_file;

class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "limbeck-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const fs::path& path() const { return path_; }
  size_t entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(path_), {}));
  }

 private:
  fs::path path_;
};

}  // namespace

TEST_CASE("files: what is written is read back, bytes of any kind") {
  const Folder folder;
  const std::string content("a\0b\r\n\xff", 6);

  write_file(folder.path() / "x", content);

  CHECK(read_file(folder.path() / "x") == content);
  CHECK(read_file(folder.path() / "x") != "a");
  CHECK(folder.entries() == 1);
}

TEST_CASE("files: empty and large ones") {
  const Folder folder;
  const std::string large(3'000'001, 'z');

  write_file(folder.path() / "empty", "");
  write_file(folder.path() / "large", large);

  CHECK(read_file(folder.path() / "empty").empty());
  CHECK(read_file(folder.path() / "large") == large);
}

TEST_CASE("files: one that says it has no size is read to its end") {
  CHECK(read_file("/proc/self/status").find("Name:") == 0);
}

TEST_CASE("files: writing makes the folder and replaces the old file") {
  const Folder folder;
  const fs::path path = folder.path() / "a/b/x";

  write_file(path, "old and long");
  write_file(path, "new");

  CHECK(read_file(path) == "new");
}

TEST_CASE("files: a new file has the usual permissions") {
  const Folder folder;
  const mode_t old = umask(022);

  write_file(folder.path() / "x", "");
  umask(old);

  struct stat status = {};
  REQUIRE(stat((folder.path() / "x").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777U) == 0644U);
}

TEST_CASE("files: a missing one is named with the reason") {
  CHECK_THROWS_WITH_AS(read_file("/no/such/file"),
                       "cannot open /no/such/file: No such file or directory", limbeck::Error);
}

TEST_CASE("files: a folder is not read") {
  CHECK_THROWS_WITH_AS(read_file("/"), "cannot read /: Is a directory", limbeck::Error);
}

TEST_CASE("files: a write that fails leaves no temporary file and the old content") {
  const Folder folder;
  const fs::path target = folder.path() / "target";
  fs::create_directories(target / "inside");

  try {
    write_file(target, "text");
    FAIL("no error");
  } catch (const limbeck::Error& error) {
    CHECK(error.fault() == limbeck::Fault::kData);
    CHECK(error.message() == "cannot replace " + target.string() + ": Is a directory");
  }

  CHECK(fs::exists(target / "inside"));
  CHECK(folder.entries() == 1);
}

TEST_CASE("files: a folder that cannot be made is named") {
  const Folder folder;
  write_file(folder.path() / "file", "");

  CHECK_THROWS_WITH_AS(write_file(folder.path() / "file/x", "text"),
                       doctest::Contains("cannot create the folder"), limbeck::Error);
}
