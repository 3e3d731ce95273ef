// SPDX-License-Identifier: Apache-2.0
// Finding the file of a plugin and holding on to it between the checks and the loading.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/export.hpp"

namespace limbeck {

// The folders in which names are looked for, and entries of LIMBECK_PLUGIN_PATH that are left
// out because they are not absolute.
struct SearchPath {
  std::vector<std::filesystem::path> folders;
  std::vector<std::string> refused;
};
LIMBECK_API SearchPath plugin_search_path();

// The absolute path of the plugin that a manifest calls `name`: a path if it has a slash or ends
// in ".so", relative to `relative_to`; else a name to be searched. Throws Error(kPlugin) that
// lists every path tried and, for names, the nearest one there is.
LIMBECK_API std::filesystem::path find_plugin(const std::string& name,
                                              const std::filesystem::path& relative_to);

// An open regular file: what was checked through its descriptor is what is_unchanged() recognises.
class LIMBECK_API PluginFile {
 public:
  // Throws Error(kPlugin) if it is not a regular file that can be read.
  explicit PluginFile(const std::filesystem::path& path);
  ~PluginFile();
  PluginFile(const PluginFile&) = delete;
  PluginFile& operator=(const PluginFile&) = delete;

  int descriptor() const { return descriptor_; }
  // Whether `path` is this very file: same device and inode.
  bool is_same(const std::filesystem::path& path) const;
  // Whether `path` is this very file, and nobody has written to it since it was opened here.
  bool is_unchanged(const std::filesystem::path& path) const;
  int64_t size() const { return status_.st_size; }  // bytes
  std::string sha256() const;                       // 64 hexadecimal digits
  // Throws Error(kPlugin) if the content has another hash. Hexadecimal, either case.
  void check_sha256(std::string_view expected) const;
  // Why users other than this one and root could replace it: the file or a folder above it is
  // theirs, or writable for group or world and, for a folder, without the sticky bit. A sentence
  // that begins with the path; empty: they cannot.
  std::string open_to_others() const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  struct stat status_ {};
};

// The files in this process's memory whose name begins with `prefix` ("libtorch_cpu.so").
LIMBECK_API std::vector<std::string> mapped_libraries(std::string_view prefix);

}  // namespace limbeck
