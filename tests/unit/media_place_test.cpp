// SPDX-License-Identifier: Apache-2.0
#include "core/train/media.hpp"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <doctest/doctest.h>

namespace fs = std::filesystem;
using limbeck::keep_media;

namespace {

class TwoFolders {
 public:
  TwoFolders() {
    std::string name = (fs::temp_directory_path() / "limbeck_media_XXXXXX").string();
    root_ = mkdtemp(name.data());
    fs::create_directories(home());
    fs::create_directories(away());
  }
  ~TwoFolders() { fs::remove_all(root_); }
  TwoFolders(const TwoFolders&) = delete;
  TwoFolders& operator=(const TwoFolders&) = delete;

  fs::path home() const { return root_ / "home"; }
  fs::path away() const { return root_ / "away"; }
  static fs::path make(const fs::path& path) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << path.string();
    return path;
  }

 private:
  fs::path root_;
};

}  // namespace

TEST_CASE("media: what is in the run's folder stays where it is") {
  const TwoFolders folders;
  const auto file = TwoFolders::make(folders.home() / "validation/a.png");
  CHECK(keep_media(file, folders.home(), 3) == file);
  CHECK(fs::exists(file));
  CHECK(keep_media(folders.home() / "validation/../validation/a.png", folders.home(), 3)
            .lexically_normal() == file);
}

TEST_CASE("media: what is elsewhere is moved, and one name of two steps is two files") {
  const TwoFolders folders;
  for (const int64_t step : {3, 4}) {
    const auto file = TwoFolders::make(folders.away() / "a.png");
    const auto kept = keep_media(file, folders.home(), step);
    CHECK(kept == folders.home() / "media" / ("step_" + std::to_string(step)) / "a.png");
    CHECK(fs::exists(kept));
    CHECK_FALSE(fs::exists(file));
  }
  CHECK(fs::exists(folders.home() / "media/step_3/a.png"));
}

TEST_CASE("media: what cannot be moved is no reason to stop") {
  const TwoFolders folders;
  const auto file = TwoFolders::make(folders.away() / "a.png");
  TwoFolders::make(folders.home() / "media");  // a file in the way
  CHECK(keep_media(file, folders.home(), 3) == file);
  CHECK(fs::exists(file));
  CHECK(keep_media(folders.away() / "gone.png", folders.home(), 3) == folders.away() / "gone.png");
}
