// SPDX-License-Identifier: Apache-2.0
// Manifests for tests: in a folder that is gone afterwards, with the plugins good_study and
// good_solo to be found by name.
#ifndef LIMBECK_TESTS_UNIT_MANIFEST_FILES_HPP
#define LIMBECK_TESTS_UNIT_MANIFEST_FILES_HPP

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/files.hpp"
#include "core/manifest/manifest.hpp"
#include "core/plugin/registry.hpp"

namespace limbeck::test {

// While it lives, plugins are looked for among the fixtures.
class FixturePlugins {
 public:
  FixturePlugins() {
    if (const char* old = std::getenv(kVariable)) {
      old_ = old;
    }
    setenv(kVariable, LIMBECK_TEST_PLUGIN_DIR, 1);
  }
  ~FixturePlugins() {
    if (old_) {
      setenv(kVariable, old_->c_str(), 1);
    } else {
      unsetenv(kVariable);
    }
  }
  FixturePlugins(const FixturePlugins&) = delete;
  FixturePlugins& operator=(const FixturePlugins&) = delete;

 private:
  static constexpr const char* kVariable = "LIMBECK_PLUGIN_PATH";
  std::optional<std::string> old_;
};

class ManifestFolder {
 public:
  ManifestFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "limbeck-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~ManifestFolder() { std::filesystem::remove_all(path_); }
  ManifestFolder(const ManifestFolder&) = delete;
  ManifestFolder& operator=(const ManifestFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // Components point into a registry, which lives as long as the folder.
  Manifest load_file(const std::filesystem::path& file, const ManifestOptions& options = {}) {
    const FixturePlugins plugins;
    registries_.push_back(std::make_unique<Registry>());
    return load_manifest(file, options, *registries_.back());
  }
  Manifest load(const std::string& text, const std::vector<std::string>& set = {}) {
    write_file(path_ / "x.toml", text);
    return load_file(path_ / "x.toml", {set, {}});
  }

  // The message of the error that loading gives, files named without this folder; or "".
  std::string fault(const std::string& text, const std::vector<std::string>& set = {}) {
    try {
      load(text, set);
    } catch (const Error& error) {
      return without(error.message(), path_.string() + "/");
    }
    return "";
  }

  static std::string without(std::string text, const std::string& part) {
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part)) {
      text.erase(at, part.size());
    }
    return text;
  }

 private:
  std::filesystem::path path_;
  std::vector<std::unique_ptr<Registry>> registries_;
};

// The least that loads: a method of two roles.
inline const std::string kPlain = R"(plugins = ["good_study"]
[models.student]
type = "toy"
config.width = 16
[models.teacher]
type = "toy"
config.width = 16
[training.optimizer]
learning_rate = 1e-3
[training.loop]
max_train_steps = 100
)";

}  // namespace limbeck::test

#endif  // LIMBECK_TESTS_UNIT_MANIFEST_FILES_HPP
