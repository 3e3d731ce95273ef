// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace limbeck {

// A picture, video or other file of a step, for the trackers.
struct ReportedFile {
  std::string name;        // what it shows: "validation_videos_40_steps"
  std::string media_type;  // "image/png"
  std::string path;        // absolute
  std::string caption;     // may be empty
};

}  // namespace limbeck
