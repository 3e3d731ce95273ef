// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/checks.hpp"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/plugin/plugin_text.hpp"

namespace limbeck {
namespace {

// More than any plugin offers: beyond it the count itself is not believed.
constexpr uint32_t kMaxComponents = 1024;
constexpr uint32_t kMaxCapabilities = 256;
// A struct larger than this is not a grown one but garbage.
constexpr uint32_t kMaxStructBytes = 4096;

constexpr const char* kEntry = "limbeck_plugin_v1";
constexpr const char* kRebuild = "build it with limbeck_add_plugin and the SDK of this limbeck";
constexpr const char* kFixTables =
    "its author can see every fault with `limbeck plugin check`; the rules are in docs/abi.md";

bool is_lower_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

// "org.example.flow": parts of letters, digits, '_' and '-', at least two of them.
bool is_plugin_id(std::string_view id) {
  const bool chars = std::all_of(id.begin(), id.end(), [](char c) {
    return is_lower_or_digit(c) || c == '.' || c == '_' || c == '-';
  });
  return chars && !id.empty() && id.size() <= kMaxName && id.find('.') != std::string_view::npos &&
         id.find("..") == id.npos && id.front() != '.' && id.back() != '.';
}

// "1.2.3", "1.2.3-rc.1+build": three numbers, then anything after '-' or '+'.
bool is_semantic_version(std::string_view version) {
  const std::string_view numbers = version.substr(0, version.find_first_of("-+"));
  int parts = 1;
  bool has_digit = false;
  for (const char c : numbers) {
    if (c == '.' && has_digit) {
      ++parts;
      has_digit = false;
    } else if (c >= '0' && c <= '9') {
      has_digit = true;
    } else {
      return false;
    }
  }
  return parts == 3 && has_digit && version.size() <= kMaxName;
}

bool is_torch_library(const std::string& soname) {
  return soname.starts_with("libtorch") || soname.starts_with("libc10");
}

// The parts in which two tags differ: "torch: 2.10.0 here 2.11.0".
std::string tag_difference(std::string_view theirs, std::string_view ours) {
  const auto parts = [](std::string_view tag) {
    std::vector<std::pair<std::string, std::string>> list;
    while (!tag.empty()) {
      const auto part = tag.substr(0, tag.find(';'));
      const auto equals = part.find('=');
      list.emplace_back(part.substr(0, equals), equals == part.npos ? "" : part.substr(equals + 1));
      tag.remove_prefix(std::min(part.size() + 1, tag.size()));
    }
    return list;
  };
  const auto mine = parts(ours);
  std::vector<std::string> differences;
  for (const auto& [key, value] : parts(theirs)) {
    const auto same_key = [&key = key](const auto& part) { return part.first == key; };
    const auto found = std::find_if(mine.begin(), mine.end(), same_key);
    const std::string expected = found == mine.end() ? "nothing" : found->second;
    if (value != expected) {
      differences.push_back(cat(key, " is ", value, ", this limbeck has ", expected));
    }
  }
  return differences.empty() ? cat("got '", theirs, "', expected '", ours, "'")
                             : join(differences, "; ");
}

[[noreturn]] void refuse(const std::string& message, const char* hint) {
  throw Error(Fault::kPlugin, message, hint);
}

void check_abi_version(const std::string& abi) {
  if (abi.empty()) {
    refuse("its note does not say which ABI it was built for: expected a line like 'abi=1.0'",
           kRebuild);
  }
  char* end = nullptr;
  const unsigned long major = std::strtoul(abi.c_str(), &end, 10);
  if (end == abi.c_str() || *end != '.') {
    refuse(cat("its note has abi ", in_quotes(abi.c_str()), ", expected a version like '1.0'"),
           kRebuild);
  }
  if (major != LB_ABI_MAJOR) {
    refuse(cat("it was built for ABI ", shown(abi.c_str()), ", this limbeck has ABI ", LB_ABI_MAJOR,
               ".", LB_ABI_MINOR, "; another major version cannot be loaded"),
           kRebuild);
  }
}

// The function that the host calls, and nothing else: any other symbol may take the place of one
// with its name elsewhere, and some kinds of symbol keep a library from being mapped twice.
void check_exports(const std::vector<ElfSymbol>& exported) {
  const auto is_entry = [](const ElfSymbol& symbol) { return symbol.name == kEntry; };
  const auto entry = std::find_if(exported.begin(), exported.end(), is_entry);
  if (entry == exported.end()) {
    refuse(cat("it exports no function '", kEntry, "'"),
           "build it with limbeck_add_plugin, and use LB_PLUGIN or define the function");
  }
  if (!entry->is_function) {
    refuse(
        cat("its '", kEntry, "' is data, expected a function"),
        "define `const lb_plugin* limbeck_plugin_v1(void)`, which returns a pointer to the data");
  }
  std::vector<std::string> others;
  for (const auto& symbol : exported) {
    if (!is_entry(symbol)) {
      others.push_back(shown(symbol.name.c_str()));
    }
  }
  if (!others.empty()) {
    const size_t count = others.size();
    others.resize(std::min<size_t>(count, 5));
    refuse(cat("it exports ", count, " symbols beside '", kEntry, "': ", join(others),
               count > others.size() ? ", ..." : ""),
           "build it with limbeck_add_plugin, or link it with the SDK's version script plugin.map");
  }
}

void check_torch(const ElfFacts& facts, std::string_view host_tag) {
  const bool is_native = facts.note.torch != "none";
  const auto torch = std::find_if(facts.needed.begin(), facts.needed.end(), is_torch_library);
  if (!is_native && torch != facts.needed.end()) {
    refuse(cat("it says that it does not share libtorch, but needs ", shown(torch->c_str())),
           "build it with `limbeck_add_plugin(... NATIVE ...)`, or without libtorch");
  }
  if (is_native && facts.note.torch != host_tag) {
    refuse(cat("it was built for another libtorch: ", tag_difference(facts.note.torch, host_tag)),
           "rebuild it against the libtorch of this limbeck, or take a build of it for that one");
  }
  for (const auto& name : facts.needed) {
    const auto slash = name.rfind('/');
    if (slash != std::string::npos && is_torch_library(name.substr(slash + 1))) {
      refuse(cat("it needs libtorch by its path, ", shown(name.c_str()),
                 ", which would bring a second copy of it into the process"),
             "link it with `limbeck_add_plugin(... NATIVE ...)`, which names it without a folder");
    }
  }
}

Faults check_identity(const lb_plugin& plugin, const PluginNote& note) {
  Faults faults;
  const auto agree = [&faults](const char* what, const char* table, const std::string& in_note) {
    if (table == nullptr || bounded(table, kMaxText) != in_note) {
      faults.push_back(cat("its ", what, " is ", in_quotes(table), " in its table and ",
                           in_quotes(in_note.c_str()), " in its file's note; they must be equal"));
    }
  };
  if (plugin.id == nullptr || !is_plugin_id(bounded(plugin.id, kMaxName))) {
    faults.push_back(cat("its id is ", in_quotes(plugin.id),
                         ", expected a reverse domain like 'org.example.flow'"));
  }
  if (plugin.version == nullptr || !is_semantic_version(bounded(plugin.version, kMaxName))) {
    faults.push_back(
        cat("its version is ", in_quotes(plugin.version), ", expected one like '1.2.3'"));
  }
  if (is_empty(plugin.license)) {
    faults.push_back("it names no licence, expected an SPDX identifier like 'Apache-2.0'");
  }
  agree("id", plugin.id, note.id);
  agree("version", plugin.version, note.version);
  agree("torch tag", plugin.torch_tag == nullptr ? "none" : plugin.torch_tag, note.torch);
  agree("ABI", cat(LB_ABI_MAJOR, ".", plugin.abi_minor).c_str(), note.abi);
  return faults;
}

Faults check_components(const lb_plugin& plugin, Header header) {
  if (plugin.n_components == 0) {
    return {"it offers no component"};
  }
  if (plugin.n_components > kMaxComponents) {
    return {cat("it claims ", plugin.n_components, " components, at most ", kMaxComponents,
                " are believed")};
  }
  if (plugin.components == nullptr) {
    return {cat("it claims ", plugin.n_components, " components, but its list is NULL")};
  }
  Faults faults;
  std::set<std::pair<std::string, std::string>> seen;
  for (uint32_t i = 0; i < plugin.n_components; ++i) {
    const lb_component* component = plugin.components[i];
    if (component == nullptr) {
      faults.push_back(cat("component ", i, " of ", plugin.n_components, " is NULL"));
      continue;
    }
    const Faults own = check_component(*component, header);
    faults.insert(faults.end(), own.begin(), own.end());
    if (component->kind != nullptr && component->name != nullptr &&
        !seen.emplace(bounded(component->kind, kMaxName), bounded(component->name, kMaxName))
             .second) {
      faults.push_back(cat("component ", in_quotes(component->name), " of kind ",
                           shown(component->kind), " is offered twice"));
    }
  }
  return faults;
}

Faults check_capabilities(const lb_component& component) {
  Faults faults;
  if (component.provides == nullptr) {
    return faults;
  }
  for (uint32_t i = 0; component.provides[i] != nullptr; ++i) {
    if (i == kMaxCapabilities) {
      faults.push_back(cat("its list of capabilities has no NULL after ", i, " entries"));
      break;
    }
    if (!is_capability(bounded(component.provides[i], kMaxName))) {
      faults.push_back(cat("it provides ", in_quotes(component.provides[i]),
                           ", expected a capability like 'limbeck.video-dit/1'"));
    }
  }
  return faults;
}

Faults check_inside(const lb_component& component, Header header) {
  Faults faults;
  if (component.name == nullptr || !is_component_name(bounded(component.name, kMaxName))) {
    faults.push_back(cat("its name is ", in_quotes(component.name), ", expected [a-z0-9_]+"));
  }
  if (is_empty(component.doc)) {
    faults.push_back("it has no doc; the first line is what `limbeck plugin list` shows");
  } else if (bounded(component.doc, kMaxText).size() > kMaxText) {
    faults.push_back(cat("its doc has no end within ", kMaxText, " bytes"));
  }
  const auto append = [&faults](const Faults& more) {
    faults.insert(faults.end(), more.begin(), more.end());
  };
  append(check_capabilities(component));
  const auto kinds = known_kinds();
  const auto kind = component.kind == nullptr ? "" : bounded(component.kind, kMaxName);
  if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) {
    faults.push_back(
        cat("its kind is ", in_quotes(component.kind), ", this limbeck knows ", join(kinds)));
    return faults;
  }
  append(check_options(component.options, kind, header));
  append(check_vtable(component, header));
  return faults;
}

}  // namespace

bool is_component_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return is_lower_or_digit(c) || c == '_'; });
}

bool is_capability(std::string_view text) {
  const auto slash = text.rfind('/');
  if (slash == std::string_view::npos || slash == 0 || slash + 1 == text.size() ||
      text.size() > kMaxName) {
    return false;
  }
  const auto name = text.substr(0, slash);
  const auto revision = text.substr(slash + 1);
  return std::all_of(
             name.begin(), name.end(),
             [](char c) { return is_lower_or_digit(c) || c == '.' || c == '-' || c == '_'; }) &&
         std::all_of(revision.begin(), revision.end(), [](char c) { return c >= '0' && c <= '9'; });
}

Faults check_size(const std::string& what, uint32_t size, size_t known, Header header) {
  if (size == known) {
    return {};
  }
  if (size > known && header == Header::kThis) {
    return {cat(what, " ", size, ", in ABI ", LB_ABI_MAJOR, ".", LB_ABI_MINOR, " it has ", known,
                "; it was compiled with a changed header")};
  }
  if (size < known || size > kMaxStructBytes) {
    return {cat(what, " ", size, ", expected ", known, " or, from a later header, a little more")};
  }
  return {};
}

void check_file(const ElfFacts& facts, std::string_view host_tag) {
  if (!facts.has_note) {
    refuse(
        "it is a shared library, but not a plugin of limbeck: it has no note '.note.limbeck', "
        "which limbeck_add_plugin puts into one",
        "name the plugin's own file; libraries that it needs are found by the dynamic linker");
  }
  check_abi_version(facts.note.abi);
  check_torch(facts, host_tag);
  check_exports(facts.exported);
}

void check_plugin(const lb_plugin& plugin, const PluginNote& note) {
  const Header header = plugin.abi_minor > LB_ABI_MINOR ? Header::kLater : Header::kThis;
  Faults faults =
      check_size("its lb_plugin has struct_size", plugin.struct_size, sizeof(lb_plugin), header);
  if (!faults.empty()) {
    refuse(faults.front(), kRebuild);
  }
  if (plugin.min_host_minor > LB_ABI_MINOR) {
    refuse(cat("it needs ABI ", LB_ABI_MAJOR, ".", plugin.min_host_minor,
               " or later, this limbeck has ABI ", LB_ABI_MAJOR, ".", LB_ABI_MINOR),
           "take a newer limbeck, or an older version of the plugin");
  }
  faults = check_identity(plugin, note);
  const Faults inside = check_components(plugin, header);
  faults.insert(faults.end(), inside.begin(), inside.end());
  if (!faults.empty()) {
    refuse(join(faults, "; "), kFixTables);
  }
}

Faults check_component(const lb_component& component, Header header) {
  Faults faults = check_size("a component has struct_size", component.struct_size,
                             sizeof(lb_component), header);
  if (!faults.empty()) {
    return faults;
  }
  faults = check_inside(component, header);
  for (auto& fault : faults) {
    fault = cat("component ", in_quotes(component.name), ": ", fault);
  }
  return faults;
}

}  // namespace limbeck
