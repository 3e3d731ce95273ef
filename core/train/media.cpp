// SPDX-License-Identifier: Apache-2.0
#include "core/train/media.hpp"

#include <string>
#include <system_error>

#include "core/base/log.hpp"
#include "core/base/text.hpp"

namespace limbeck {
namespace {

namespace fs = std::filesystem;

// Across file systems too.
void move_file(const fs::path& from, const fs::path& to, std::error_code& error) {
  fs::create_directories(to.parent_path(), error);
  if (error) {
    return;
  }
  fs::rename(from, to, error);
  if (error == std::errc::cross_device_link) {
    fs::copy_file(from, to, fs::copy_options::overwrite_existing, error);
    if (!error) {
      fs::remove(from, error);
    }
  }
}

}  // namespace

fs::path keep_media(const fs::path& file, const fs::path& home, int64_t step) {
  const auto inside = file.lexically_normal().lexically_relative(home.lexically_normal());
  if (!inside.empty() && *inside.begin() != "..") {
    return file;
  }
  const auto target = home / "media" / ("step_" + std::to_string(step)) / file.filename();
  std::error_code error;
  move_file(file, target, error);
  if (error) {
    log::warn("track", cat("cannot move ", file.string(), " to ", target.string(), ": ",
                           error.message(), "; it stays where it is"));
    return file;
  }
  return target;
}

}  // namespace limbeck
