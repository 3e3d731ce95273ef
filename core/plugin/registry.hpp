// SPDX-License-Identifier: Apache-2.0
// Plugins that were loaded and the components they offer. Libraries are never unloaded: tensors,
// autograd nodes and vtables of a plugin may live until the process ends.
#pragma once

#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <limbeck/abi.h>

#include "core/base/export.hpp"
#include "core/manifest/diagnostics.hpp"

namespace limbeck {

class PluginFile;
struct ElfFacts;

// One loaded plugin.
struct Library {
  std::string name;            // what the manifest says: "basics", or the file's stem
  std::filesystem::path path;  // absolute
  const lb_plugin* plugin = nullptr;
  lb_state* state = nullptr;  // what init() made; set by start()
  bool is_started = false;
};

// One thing a plugin offers.
struct Component {
  const lb_component* table = nullptr;
  const Library* library = nullptr;

  std::string name() const { return table->name; }
  std::string kind() const { return table->kind; }
  LIMBECK_API bool provides(std::string_view capability) const;
  // The first line of its documentation.
  LIMBECK_API std::string summary() const;
  template <class Vtable>
  const Vtable& vtable() const {
    return *static_cast<const Vtable*>(table->vtable);
  }
};

// Where a manifest asks for a plugin.
struct PluginRequest {
  std::string name;    // "basics", "./my/plugin.so", "/abs/plugin.so"
  std::string sha256;  // empty: not pinned
  Position at;
};

class LIMBECK_API Registry {
 public:
  Registry();
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // Called once, before the first plugin that shares libtorch is opened: makes libtorch global.
  // Without one, such a plugin is refused.
  void on_native(std::function<void()> open_libtorch);
  // From now on a plugin that others than this user could replace is refused; else it is a warning.
  void be_strict() { is_strict_ = true; }

  // Checks the file without running its code (hash, ELF note, needed libraries, symbols), opens it
  // and checks its tables, in a child process first, and adds its components. Every fault goes to
  // `diagnostics`; a plugin that has one is not added. A plugin that is already loaded is not
  // loaded again. [control]
  void load(const PluginRequest& request,
            const std::filesystem::path& relative_to,
            Diagnostics& diagnostics);

  // Calls init() of the plugins that were not started yet. `host` must outlive the process.
  // Throws Error. If init() crashes, its plugin is named before the process ends. [control]
  void start(const lb_host& host);
  // Calls shutdown() of started plugins, last one first. [control]
  void stop();

  const std::deque<Library>& libraries() const { return libraries_; }
  const std::deque<Component>& components() const { return components_; }
  // nullptr if there is none.
  const Component* find(std::string_view kind, std::string_view name) const;
  // Those of a kind, in order of loading.
  std::vector<const Component*> of_kind(std::string_view kind) const;

  // The folders in which names are looked for, in order: LIMBECK_PLUGIN_PATH, then the
  // installation's own.
  static std::vector<std::filesystem::path> search_path();

 private:
  void load_file(const PluginRequest& request,
                 const std::filesystem::path& path,
                 Diagnostics& diagnostics);
  void check_place(const PluginRequest& request, const PluginFile& file, Diagnostics& diagnostics);
  void open_libtorch_for(const ElfFacts& facts);
  void add(const PluginRequest& request,
           const std::filesystem::path& path,
           const lb_plugin& plugin);

  std::function<void()> open_libtorch_;
  bool is_strict_ = false;
  std::deque<Library> libraries_;  // deque: components point into it
  std::deque<Component> components_;
};

}  // namespace limbeck
