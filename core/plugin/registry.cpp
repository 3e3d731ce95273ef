// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/registry.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <boost/dll/shared_library.hpp>

#include "core/base/error.hpp"
#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/plugin/checks.hpp"
#include "core/plugin/child_process.hpp"
#include "core/plugin/crash_note.hpp"
#include "core/plugin/elf_note.hpp"
#include "core/plugin/host_table.hpp"
#include "core/plugin/plugin_file.hpp"
#include "core/plugin/status.hpp"

namespace limbeck {
namespace {

namespace fs = std::filesystem;
namespace dll = boost::dll;

constexpr const char* kEntry = "limbeck_plugin_v1";

// Keeps every library open until the process ends: see the head of registry.hpp.
std::deque<dll::shared_library>& open_libraries() {
  static auto& libraries = *new std::deque<dll::shared_library>;
  return libraries;
}

// "flow (org.example.flow 1.2.3)"
std::string full_name(const Library& library) {
  return cat("'", library.name, "' (", library.plugin->id, " ", library.plugin->version, ")");
}

// The dynamic linker's own text, without what Boost puts around it and without the path, which is
// in the message already.
std::string linker_text(const std::exception& error, const fs::path& path) {
  std::string_view text = error.what();
  const auto skip = [&text](std::string_view before) {
    if (const auto at = text.find(before); at != std::string_view::npos) {
      text.remove_prefix(at + before.size());
    }
  };
  skip("dlerror system message: ");
  text = text.substr(0, text.find("): Bad file descriptor"));
  skip(path.string() + ": ");
  return std::string(text);
}

// Two copies of libtorch in one process have two registries of operators and types.
void check_one_libtorch() {
  for (const char* name : {"libtorch_cpu.so", "libc10.so"}) {
    const auto paths = mapped_libraries(name);
    if (paths.size() > 1) {
      throw Error(Fault::kPlugin,
                  cat("it brought a second libtorch into the process: ", join(paths, " and ")),
                  "link it, and every library that it needs, against the libtorch of this limbeck");
    }
  }
}

// A part of libtorch that this host did not load would be loaded from wherever the linker finds it.
void check_has_parts(const ElfFacts& facts) {
  for (const auto& name : facts.needed) {
    const bool is_part = name.starts_with("libtorch") || name.starts_with("libc10");
    if (is_part && mapped_libraries(name).empty()) {
      throw Error(Fault::kPlugin, cat("it needs ", name, ", which this limbeck does not load"),
                  "link it against libtorch_cpu and libc10 only");
    }
  }
}

const lb_plugin& open_plugin(const fs::path& path, const ElfFacts& facts) {
  // Kept from the first moment: constructors may have left something behind that runs its code.
  dll::shared_library& library = open_libraries().emplace_back();
  try {
    library.load(path, dll::load_mode::rtld_now | dll::load_mode::rtld_local);
  } catch (const std::exception& error) {
    open_libraries().pop_back();
    throw Error(Fault::kPlugin, cat("the dynamic linker refuses it: ", linker_text(error, path)),
                "`ldd FILE` shows which libraries are found; a symbol that is undefined must come "
                "from a library that the plugin is linked with");
  }
  if (facts.note.torch != "none") {
    check_one_libtorch();
  }
  const lb_plugin* plugin = library.get<const lb_plugin*()>(kEntry)();
  if (plugin == nullptr) {
    throw Error(Fault::kPlugin, cat("its function '", kEntry, "' returned NULL"),
                "it returns the address of a static lb_plugin");
  }
  return *plugin;
}

// Runs constructors and reads tables for the first time in a copy of this process. That costs half
// a millisecond for a small plugin and twice the opening for one with large libraries.
void try_in_child(const fs::path& path, const ElfFacts& facts) {
  constexpr std::chrono::seconds kLimit(60);
  const auto outcome = run_in_child(
      [&](const ChildReport& report) {
        report.stage("while it was opened");
        const lb_plugin& plugin = open_plugin(path, facts);
        report.stage("while its tables were read");
        check_plugin(plugin, facts.note);
        return std::string();
      },
      kLimit);
  if (outcome.end == ChildOutcome::End::kError) {
    throw Error(Fault::kPlugin, outcome.text, outcome.hint);
  }
  if (outcome.end != ChildOutcome::End::kDone) {
    throw Error(Fault::kPlugin, outcome.fault(),
                "opening a plugin must run no code but constructors that cannot fail, and its "
                "tables must be static data; its author finds the place with "
                "`gdb --args limbeck plugin list FILE` and `set follow-fork-mode child`");
  }
}

}  // namespace

bool Component::provides(std::string_view capability) const {
  for (const char* const* one = table->provides; one != nullptr && *one != nullptr; ++one) {
    if (capability == *one) {
      return true;
    }
  }
  return false;
}

std::string Component::summary() const {
  const std::string_view doc = table->doc;
  return std::string(doc.substr(0, doc.find('\n')));
}

Registry::Registry() = default;
Registry::~Registry() = default;

void Registry::on_native(std::function<void()> open_libtorch) {
  open_libtorch_ = std::move(open_libtorch);
}

std::vector<fs::path> Registry::search_path() { return plugin_search_path().folders; }

void Registry::load(const PluginRequest& request,
                    const fs::path& relative_to,
                    Diagnostics& diagnostics) {
  fs::path path;
  try {
    path = find_plugin(request.name, relative_to);
  } catch (const Error& error) {
    diagnostics.error(request.at, error.message(), error.hint());
    return;
  }
  try {
    load_file(request, fs::canonical(path), diagnostics);
  } catch (const Error& error) {
    diagnostics.error(request.at,
                      cat("plugin '", request.name, "', ", path.string(), ": ", error.message()),
                      error.hint());
  } catch (const fs::filesystem_error& error) {
    diagnostics.error(request.at, cat("plugin '", request.name, "': ", error.what()));
  }
}

void Registry::load_file(const PluginRequest& request,
                         const fs::path& path,
                         Diagnostics& diagnostics) {
  const PluginFile file(path);
  if (!request.sha256.empty()) {
    file.check_sha256(request.sha256);
  }
  for (const auto& library : libraries_) {
    if (file.is_same(library.path)) {
      return;
    }
  }
  check_place(request, file, diagnostics);
  const ElfFacts facts = read_elf(file.descriptor());
  check_file(facts, host_torch_tag());
  open_libtorch_for(facts);

  // What was checked is what is opened: the name must lead to the same file before and after.
  const auto check_unchanged = [&] {
    if (!file.is_unchanged(path)) {
      throw Error(Fault::kPlugin, "its file was replaced or written to while it was loaded",
                  "try again when nothing writes to it");
    }
  };
  check_unchanged();
  try_in_child(path, facts);
  const lb_plugin& plugin = open_plugin(path, facts);
  check_unchanged();
  check_plugin(plugin, facts.note);
  add(request, path, plugin);
}

void Registry::check_place(const PluginRequest& request,
                           const PluginFile& file,
                           Diagnostics& diagnostics) {
  const std::string why = file.open_to_others();
  if (why.empty()) {
    return;
  }
  const char* hint = "whoever can write there can run code as you";
  if (is_strict_) {
    throw Error(Fault::kPlugin, why, cat(hint, "; --strict refuses such plugins"));
  }
  diagnostics.warn(request.at, cat("plugin '", request.name, "': ", why), hint);
}

void Registry::open_libtorch_for(const ElfFacts& facts) {
  if (facts.note.torch == "none") {
    return;
  }
  if (!open_libtorch_) {
    throw Error(Fault::kPlugin, "it shares libtorch, which this command does not load",
                "leave it out here, or use a command that trains");
  }
  open_libtorch_();
  open_libtorch_ = [] {};  // once is enough; if it throws, the next such plugin tries again
  check_has_parts(facts);
}

void Registry::add(const PluginRequest& request, const fs::path& path, const lb_plugin& plugin) {
  for (const auto& library : libraries_) {
    if (std::string_view(library.plugin->id) == plugin.id) {
      throw Error(Fault::kPlugin,
                  cat("a plugin with the id ", plugin.id, " is already loaded, from ",
                      library.path.string()),
                  "name one of the two files only");
    }
  }
  for (uint32_t i = 0; i < plugin.n_components; ++i) {
    const lb_component& table = *plugin.components[i];
    if (const Component* other = find(table.kind, table.name)) {
      throw Error(Fault::kPlugin,
                  cat("it offers '", table.name, "' of kind ", table.kind, ", as plugin ",
                      full_name(*other->library), " does"),
                  "leave one of the two plugins out, or rename the component");
    }
  }
  Library& library = libraries_.emplace_back();
  library.name = path.stem().string();
  library.path = path;
  library.plugin = &plugin;
  for (uint32_t i = 0; i < plugin.n_components; ++i) {
    components_.push_back({plugin.components[i], &library});
  }
  log::debug("plugin", cat("loaded ", full_name(library), " from ", path.string(), " for '",
                           request.name, "'"));
}

void Registry::start(const lb_host& host) {
  for (auto& library : libraries_) {
    if (library.is_started) {
      continue;
    }
    if (library.plugin->init != nullptr) {
      const CrashNote note(
          cat("in init() of plugin ", full_name(library), ", ", library.path.string()));
      call_plugin([&] { return library.plugin->init(&host, &library.state); },
                  [&] { return cat("while starting plugin ", full_name(library)); });
    }
    library.is_started = true;
  }
}

void Registry::stop() {
  for (auto library = libraries_.rbegin(); library != libraries_.rend(); ++library) {
    if (library->is_started && library->plugin->shutdown != nullptr) {
      const CrashNote note(
          cat("in shutdown() of plugin ", full_name(*library), ", ", library->path.string()));
      library->plugin->shutdown(library->state);
    }
    library->is_started = false;
    library->state = nullptr;
  }
}

const Component* Registry::find(std::string_view kind, std::string_view name) const {
  const auto found =
      std::find_if(components_.begin(), components_.end(), [&](const Component& component) {
        return kind == component.table->kind && name == component.table->name;
      });
  return found == components_.end() ? nullptr : &*found;
}

std::vector<const Component*> Registry::of_kind(std::string_view kind) const {
  std::vector<const Component*> found;
  for (const auto& component : components_) {
    if (kind == component.table->kind) {
      found.push_back(&component);
    }
  }
  return found;
}

}  // namespace limbeck
