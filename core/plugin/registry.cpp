// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/registry.hpp"

#include <algorithm>
#include <utility>

#include <boost/dll/shared_library.hpp>

#include "core/base/error.hpp"
#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/plugin/checks.hpp"
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

[[noreturn]] void refuse(const Faults& faults) { throw Error(Fault::kPlugin, join(faults, "; ")); }

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

const lb_plugin& open_plugin(const fs::path& path) {
  dll::shared_library library;
  try {
    library.load(path, dll::load_mode::rtld_now | dll::load_mode::rtld_local);
  } catch (const std::exception& error) {
    throw Error(Fault::kPlugin, cat("the dynamic linker refuses it: ", linker_text(error, path)));
  }
  if (!library.has(kEntry)) {
    throw Error(Fault::kPlugin, cat("it exports no function '", kEntry, "'"),
                "build it with limbeck_add_plugin, and use LB_PLUGIN or define the function");
  }
  const auto entry = library.get<const lb_plugin*()>(kEntry);
  open_libraries().push_back(std::move(library));
  const lb_plugin* plugin = entry();
  if (plugin == nullptr) {
    throw Error(Fault::kPlugin, cat("its function '", kEntry, "' returned NULL"));
  }
  return *plugin;
}

// Two copies of libtorch in one process have two registries of operators and types.
void check_one_libtorch() {
  for (const char* name : {"libtorch_cpu.so", "libc10.so"}) {
    const auto paths = mapped_libraries(name);
    if (paths.size() > 1) {
      throw Error(Fault::kPlugin,
                  cat("it brought a second libtorch into the process: ", join(paths, " and ")),
                  "link it against the libtorch of this limbeck");
    }
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
  if (const auto place = file.writable_by_others(); !place.empty()) {
    diagnostics.warn(request.at,
                     cat("plugin '", request.name, "': ", place.string(),
                         " can be written by its group or by everybody"),
                     "whoever can write there can run code as you");
  }
  const ElfFacts facts = read_elf(file.descriptor());
  if (const Faults faults = check_file(facts, host_torch_tag()); !faults.empty()) {
    refuse(faults);
  }
  const bool is_native = facts.note.torch != "none";
  if (is_native) {
    if (!open_libtorch_) {
      throw Error(Fault::kPlugin, "it shares libtorch, which this command does not load");
    }
    open_libtorch_();
    open_libtorch_ = [] {};  // once is enough; if it throws, the next such plugin tries again
  }
  add(request, path, open_checked(file, path, facts));
}

// Opens what was checked: the name must lead to the same file before and after.
const lb_plugin& Registry::open_checked(const PluginFile& file,
                                        const fs::path& path,
                                        const ElfFacts& facts) {
  const auto check_same = [&] {
    if (!file.is_same(path)) {
      throw Error(Fault::kPlugin, "it was replaced by another file while it was loaded",
                  "try again when nothing writes to it");
    }
  };
  check_same();
  const lb_plugin& plugin = open_plugin(path);
  check_same();
  if (facts.note.torch != "none") {
    check_one_libtorch();
  }
  if (const Faults faults = check_plugin(plugin, facts.note); !faults.empty()) {
    refuse(faults);
  }
  return plugin;
}

void Registry::add(const PluginRequest& request, const fs::path& path, const lb_plugin& plugin) {
  Faults faults;
  for (const auto& library : libraries_) {
    if (std::string_view(library.plugin->id) == plugin.id) {
      faults.push_back(cat("a plugin with the id ", plugin.id, " is already loaded, from ",
                           library.path.string()));
    }
  }
  for (uint32_t i = 0; i < plugin.n_components && faults.empty(); ++i) {
    const lb_component& table = *plugin.components[i];
    if (const Component* other = find(table.kind, table.name)) {
      faults.push_back(cat("it offers '", table.name, "' of kind ", table.kind, ", as plugin ",
                           full_name(*other->library), " does"));
    }
  }
  if (!faults.empty()) {
    refuse(faults);
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
      const std::string frame = cat("while starting plugin ", full_name(library));
      lb_status* status = nullptr;
      try {
        status = library.plugin->init(&host, &library.state);
      } catch (...) {
        status = make_status(LB_INTERNAL, "an exception left the plugin's init()");
      }
      check(status, frame);
    }
    library.is_started = true;
  }
}

void Registry::stop() {
  for (auto library = libraries_.rbegin(); library != libraries_.rend(); ++library) {
    if (library->is_started && library->plugin->shutdown != nullptr) {
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
