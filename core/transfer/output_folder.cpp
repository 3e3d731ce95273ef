// SPDX-License-Identifier: Apache-2.0
#include "core/transfer/output_folder.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

#include <unistd.h>

#include "core/base/error.hpp"
#include "core/base/files.hpp"
#include "core/base/log.hpp"
#include "core/base/text.hpp"

namespace limbeck {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_place(const fs::path& path,
                               const std::string& what,
                               const std::string& hint = "") {
  throw Error(Fault::kData, cat(path.string(), ": ", what), hint);
}

// Whether `inner` is `outer` or below it; both canonical.
bool is_within(const fs::path& inner, const fs::path& outer) {
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

void check_place(const fs::path& place, const OutputFolderRules& rules) {
  std::error_code ignored;
  for (const auto& source : rules.sources) {
    const auto real = fs::weakly_canonical(source, ignored);
    if (is_within(real, place)) {
      refuse_place(place,
                   cat("cannot be written: ", source.string(), ", which is read, is inside it"));
    }
    if (is_within(place, real)) {
      refuse_place(place, cat("is inside ", source.string(), ", which is read"),
                   "choose a folder outside of it");
    }
  }
  if (!fs::exists(fs::symlink_status(place, ignored))) {
    return;
  }
  if (fs::is_directory(place, ignored) && fs::is_empty(place, ignored)) {
    return;
  }
  if (!rules.overwrites) {
    refuse_place(place, "exists already",
                 "choose another folder, or add --overwrite to replace it");
  }
  if (!fs::exists(place / rules.record, ignored)) {
    refuse_place(place,
                 cat("is not replaced: it has no ", rules.record,
                     ", so this program did not write "
                     "it"),
                 "remove it yourself, or choose another folder");
  }
}

}  // namespace

OutputFolder::OutputFolder(const fs::path& path, OutputFolderRules rules) {
  std::error_code error;
  // "a/" has no file name; links on the way are followed, so that the temporary folder is beside.
  place_ = fs::weakly_canonical(fs::absolute(path / ""), error);
  if (place_.filename().empty()) {
    place_ = place_.parent_path();
  }
  if (error || place_.filename().empty()) {
    refuse_place(path, "cannot be a folder to write");
  }
  check_place(place_, rules);
  const auto parent = place_.parent_path();
  fs::create_directories(parent, error);
  temporary_ = parent / cat(".", place_.filename().string(), ".", ::getpid(), ".tmp");
  if (!error) {
    fs::remove_all(temporary_, error);
  }
  if (!error) {
    fs::create_directory(temporary_, error);
  }
  if (error) {
    refuse_place(parent, cat("cannot make a folder here: ", error.message()));
  }
}

OutputFolder::~OutputFolder() {
  if (!temporary_.empty()) {
    std::error_code ignored;
    fs::remove_all(temporary_, ignored);
  }
}

void OutputFolder::publish() {
  std::error_code error;
  flush_folder(temporary_);
  auto aside = temporary_;
  aside += ".old";
  const bool replaces = fs::exists(place_, error);
  if (replaces) {
    fs::rename(place_, aside, error);
    if (error) {
      refuse_place(place_, cat("cannot be moved aside: ", error.message()));
    }
  }
  fs::rename(temporary_, place_, error);
  if (error) {
    std::error_code ignored;
    if (replaces) {
      fs::rename(aside, place_, ignored);
    }
    refuse_place(place_, cat("cannot rename the new folder: ", error.message()));
  }
  temporary_.clear();
  flush_folder(place_.parent_path());
  if (replaces) {
    fs::remove_all(aside, error);
    if (error) {
      log::warn("export",
                cat("cannot remove the old folder ", aside.string(), ": ", error.message()));
    }
  }
}

}  // namespace limbeck
