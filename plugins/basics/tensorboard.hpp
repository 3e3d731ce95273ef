// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>

#include <limbeck/tracker.hpp>

#include "basics/event_file.hpp"

namespace basics {

// Metrics, pictures and the manifest for TensorBoard, in a new file of <run's folder>/tensorboard;
// `tensorboard --logdir <run's folder>` shows them while the run goes on, for every event reaches
// the file at once. Earlier files stay; of a resumed run TensorBoard shows their steps before
// `first_step`.
//
//   numbers     scalars, under their names
//   PNG, GIF    images, under their names, with the caption as description
//   captions    text "<name>/caption", where it differs from the one before
//   other files text "<name>": media type and path
//   manifest    text "manifest" at the step before the first
class Tensorboard final : public lb::Tracker {
 public:
  explicit Tensorboard(const lb_tracked_run& run);

  void scalars(int64_t step, lb::List<const char*> names, lb::List<double> values) override;
  void file(int64_t step,
            const std::string& name,
            const std::string& media_type,
            const std::string& path,
            const std::string& caption) override;

 private:
  std::optional<EventFile> events_;              // never empty
  std::map<std::string, std::string> captions_;  // that were written, by name
};

}  // namespace basics
