// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/plugin_file.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "core/base/error.hpp"
#include "core/base/sha256.hpp"
#include "core/base/text.hpp"

namespace limbeck {
namespace {

namespace fs = std::filesystem;

// The folder of the library that this code is in: <prefix>/lib.
fs::path own_folder() {
  Dl_info info{};
  const void* address = reinterpret_cast<const void*>(&plugin_search_path);
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) {
    return {};
  }
  std::error_code ignored;
  return fs::canonical(info.dli_fname, ignored).parent_path();
}

bool is_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-';
  });
}

bool is_path(const std::string& name) {
  return name.find('/') != std::string::npos || name.ends_with(".so");
}

std::vector<std::string> names_in(const std::vector<fs::path>& folders) {
  std::vector<std::string> names;
  for (const auto& folder : folders) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored)) {
      if (entry.path().extension() == ".so") {
        names.push_back(entry.path().stem().string());
      }
    }
  }
  return names;
}

// How others could change what this is the status of; nullptr: they cannot.
const char* reason(const struct stat& status) {
  if (status.st_uid != 0 && status.st_uid != geteuid()) {
    return "belongs to another user";
  }
  const bool is_sticky = S_ISDIR(status.st_mode) && (status.st_mode & S_ISVTX) != 0;
  return (status.st_mode & (S_IWGRP | S_IWOTH)) != 0 && !is_sticky
             ? "can be written by its group or by everybody"
             : nullptr;
}

[[noreturn]] void not_found(const std::string& name,
                            const SearchPath& path,
                            const std::vector<std::string>& tried) {
  std::string message = cat("plugin '", name, "' was not found; tried ", join(tried));
  if (!path.refused.empty()) {
    message += cat("; LIMBECK_PLUGIN_PATH also has '", join(path.refused, "', '"),
                   "', which is left out because it is not absolute");
  }
  const std::string near = nearest(name, names_in(path.folders));
  throw Error(Fault::kPlugin, message,
              near.empty() ? "name its file, or add its folder to LIMBECK_PLUGIN_PATH"
                           : cat("did you mean '", near, "'?"));
}

}  // namespace

SearchPath plugin_search_path() {
  SearchPath path;
  // secure_getenv: a program with raised rights must not load what its caller's variables say.
  const char* variable = secure_getenv("LIMBECK_PLUGIN_PATH");
  std::istringstream entries(variable == nullptr ? "" : variable);
  for (std::string entry; std::getline(entries, entry, ':');) {
    if (entry.empty()) {
      continue;
    }
    if (fs::path(entry).is_absolute()) {
      path.folders.emplace_back(entry);
    } else {
      path.refused.push_back(entry);
    }
  }
  path.folders.push_back(own_folder() / "limbeck" / "plugins");
  return path;
}

fs::path find_plugin(const std::string& name, const fs::path& relative_to) {
  if (is_path(name)) {
    fs::path path = fs::absolute(relative_to / name).lexically_normal();
    std::error_code ignored;
    if (!fs::exists(path, ignored)) {
      throw Error(Fault::kPlugin, cat("plugin '", name, "' was not found; tried ", path.string()),
                  "paths are relative to the manifest's folder");
    }
    return path;
  }
  if (!is_name(name)) {
    throw Error(Fault::kPlugin,
                cat("'", name, "' is neither the name of a plugin, [A-Za-z0-9_-]+, nor a path"),
                "a path has a slash in it or ends in '.so'");
  }
  const SearchPath search = plugin_search_path();
  std::vector<std::string> tried;
  for (const auto& folder : search.folders) {
    fs::path path = folder / (name + ".so");
    std::error_code ignored;
    if (fs::exists(path, ignored)) {
      return path;
    }
    tried.push_back(path.string());
  }
  not_found(name, search, tried);
}

PluginFile::PluginFile(const fs::path& path) : path_(path) {
  // O_NONBLOCK: opening a named pipe must not wait for its other end.
  descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0 || fstat(descriptor_, &status_) != 0) {
    const std::string reason = std::strerror(errno);
    if (descriptor_ >= 0) {
      close(descriptor_);
    }
    throw Error(Fault::kPlugin, cat("it cannot be opened: ", reason),
                "this user must be able to read the file and to enter its folders");
  }
  if (!S_ISREG(status_.st_mode)) {
    close(descriptor_);
    throw Error(Fault::kPlugin,
                S_ISDIR(status_.st_mode) ? "it is a folder, expected a '.so' file"
                                         : "it is not a regular file",
                "name the '.so' file of the plugin");
  }
}

PluginFile::~PluginFile() { close(descriptor_); }

bool PluginFile::is_same(const fs::path& path) const {
  struct stat now {};
  return stat(path.c_str(), &now) == 0 && now.st_dev == status_.st_dev &&
         now.st_ino == status_.st_ino;
}

bool PluginFile::is_unchanged(const fs::path& path) const {
  // ctime: what writes to a file cannot set it back.
  struct stat now {};
  return is_same(path) && fstat(descriptor_, &now) == 0 && now.st_size == status_.st_size &&
         now.st_ctim.tv_sec == status_.st_ctim.tv_sec &&
         now.st_ctim.tv_nsec == status_.st_ctim.tv_nsec;
}

std::string PluginFile::sha256() const { return sha256_of_descriptor(descriptor_); }

void PluginFile::check_sha256(std::string_view expected) const {
  std::string wanted(expected);
  std::transform(wanted.begin(), wanted.end(), wanted.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::string actual = sha256();
  if (actual != wanted) {
    throw Error(Fault::kPlugin, cat("its sha256 is ", actual, ", the manifest expects ", wanted),
                "if you meant to use this build, write its hash into the manifest");
  }
}

std::string PluginFile::open_to_others() const {
  if (const char* why = reason(status_)) {
    return cat(path_.string(), " ", why);
  }
  for (fs::path folder = path_.parent_path();; folder = folder.parent_path()) {
    struct stat status {};
    if (stat(folder.c_str(), &status) == 0) {
      if (const char* why = reason(status)) {
        return cat(folder.string(), " ", why);
      }
    }
    if (folder == folder.parent_path()) {
      return "";
    }
  }
}

std::vector<std::string> mapped_libraries(std::string_view prefix) {
  struct Search {
    std::string_view prefix;
    std::vector<std::string> found;
  };
  Search search{prefix, {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        const std::string path = info->dlpi_name == nullptr ? "" : info->dlpi_name;
        if (fs::path(path).filename().string().starts_with(wanted.prefix)) {
          wanted.found.push_back(path);
        }
        return 0;
      },
      &search);
  return search.found;
}

}  // namespace limbeck
