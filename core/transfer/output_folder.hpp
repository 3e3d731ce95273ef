// SPDX-License-Identifier: Apache-2.0
// A folder that appears complete or not at all.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/export.hpp"

namespace limbeck {

struct OutputFolderRules {
  // What is at the path now is replaced, if it holds the file `record`: only folders that this
  // program wrote are ever removed.
  bool overwrites = false;
  std::string record;
  // What is read while the folder is made: none of it may be inside it, nor it inside one of them.
  std::vector<std::filesystem::path> sources;
};

// Made beside its place under a temporary name, and removed again unless publish() was called.
class LIMBECK_API OutputFolder {
 public:
  // Throws Error(kData) if there is something at `path` that the rules do not let go (an empty
  // folder may be replaced always), or the folder cannot be made.
  OutputFolder(const std::filesystem::path& path, OutputFolderRules rules);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  // Where to write.
  const std::filesystem::path& path() const { return temporary_; }
  // Renames it into its place. Throws Error(kData); then what was there is still there.
  void publish();

 private:
  std::filesystem::path place_;
  std::filesystem::path temporary_;
};

}  // namespace limbeck
