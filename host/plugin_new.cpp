// SPDX-License-Identifier: Apache-2.0
// A new plugin: the SDK's template of its kind and language, under its own name.
#include <algorithm>
#include <filesystem>
#include <iostream>

#include "core/base/error.hpp"
#include "core/base/files.hpp"
#include "core/base/text.hpp"
#include "host/commands.hpp"

namespace limbeck::host {
namespace {

namespace fs = std::filesystem;

// What the templates are called.
constexpr const char* kPlaceholder = "my_plugin";

// <prefix>/bin/limbeck -> <prefix>
fs::path prefix() { return fs::canonical("/proc/self/exe").parent_path().parent_path(); }

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

void check_name(const std::string& name) {
  const bool has_only = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
  if (name.empty() || !has_only || name.front() < 'a' || name.front() > 'z' || name.size() > 64) {
    throw Error(Fault::kUsage, cat("'", name, "' cannot be the name of a plugin"),
                "a letter, then letters, digits and '_': [a-z][a-z0-9_]*");
  }
}

}  // namespace

void plugin_new(const Options& options) {
  const std::string& name = options.plugins.front();
  check_name(name);
  const std::string suffix = options.language == "c" ? ".c" : ".cpp";
  const fs::path templates = prefix() / "share" / "limbeck" / "template";
  const fs::path folder = options.output.empty() ? fs::path(name) : options.output;

  struct Entry {
    std::string from;
    std::string to;
  };
  const std::vector<Entry> entries = {{"CMakeLists.txt", "CMakeLists.txt"},
                                      {options.kind + suffix, name + suffix},
                                      {"README.md", "README.md"}};
  for (const auto& entry : entries) {
    if (fs::exists(folder / entry.to)) {
      throw Error(Fault::kUsage, cat((folder / entry.to).string(), " exists already"),
                  "choose another name or --output-dir; nothing was written");
    }
  }
  for (const auto& entry : entries) {
    std::string text = read_file(templates / entry.from);
    if (options.language == "c") {
      text = replaced(text, "LANGUAGES CXX", "LANGUAGES C");
      text = replaced(text, cat("SOURCES ", kPlaceholder, ".cpp"),
                      cat("SOURCES ", kPlaceholder, ".c"));
    }
    write_file(folder / entry.to, replaced(text, kPlaceholder, name));
    std::cout << "wrote " << (folder / entry.to).string() << '\n';
  }
  const std::string build = (folder / "build").string();
  std::cout << "\nBuild and check it:\n"
            << "  cmake -S " << folder.string() << " -B " << build
            << " -DCMAKE_PREFIX_PATH=" << prefix().string() << '\n'
            << "  cmake --build " << build << '\n'
            << "  limbeck plugin check " << build << '/' << name << ".so\n";
}

}  // namespace limbeck::host
