// SPDX-License-Identifier: Apache-2.0
#include "basics/tensorboard.hpp"

#include <filesystem>
#include <stdexcept>
#include <utility>
#include <vector>

#include "basics/file_tracker.hpp"

namespace basics {
namespace {

// Markdown that shows `text` as it is: a line of code for every line.
std::string as_code(const std::string& text) {
  std::string code = "    ";
  for (const char character : text) {
    code += character;
    if (character == '\n') {
      code += "    ";
    }
  }
  return code;
}

}  // namespace

Tensorboard::Tensorboard(const lb_tracked_run& run) {
  or_later([&] {
    events_.emplace(std::filesystem::path(run.directory) / "tensorboard", run.first_step,
                    wall_time());
    events_->text(run.first_step - 1, wall_time(), "manifest", as_code(run.manifest));
  });
}

void Tensorboard::scalars(int64_t step, lb::List<const char*> names, lb::List<double> values) {
  std::vector<std::pair<std::string, double>> pairs;
  for (size_t i = 0; i < names.size(); ++i) {
    pairs.emplace_back(names[i], values[i]);
  }
  or_later([&] { events_->scalars(step, wall_time(), pairs); });
}

void Tensorboard::file(int64_t step,
                       const std::string& name,
                       const std::string& media_type,
                       const std::string& path,
                       const std::string& caption) {
  std::optional<Picture> picture;
  if (media_type == "image/png" || media_type == "image/gif") {
    try {
      picture = read_picture(path);
    } catch (const std::runtime_error& error) {
      throw lb::Error(LB_DATA_LOSS, error.what());  // trying again would not help
    }
  }
  or_later([&] {
    if (picture.has_value()) {
      events_->picture(step, wall_time(), name, *picture, caption);
    } else {
      events_->text(step, wall_time(), name, media_type + ": `" + path + "`");
    }
    if (const auto last = captions_.find(name);
        !caption.empty() && (last == captions_.end() || last->second != caption)) {
      events_->text(step, wall_time(), name + "/caption", caption);
      captions_[name] = caption;
    }
  });
}

}  // namespace basics
