// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/checks.hpp"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>

#include "core/base/text.hpp"

namespace limbeck {
namespace {

// More than any plugin offers: beyond it the count itself is not believed.
constexpr uint32_t kMaxComponents = 1024;
constexpr uint32_t kMaxCapabilities = 256;

bool is_lower_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

// "org.example.flow": parts of letters, digits, '_' and '-', at least two of them.
bool is_plugin_id(std::string_view id) {
  const bool chars = std::all_of(id.begin(), id.end(), [](char c) {
    return is_lower_or_digit(c) || c == '.' || c == '_' || c == '-';
  });
  return chars && id.find('.') != std::string_view::npos && id.find("..") == id.npos &&
         id.front() != '.' && id.back() != '.';
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
  return parts == 3 && has_digit;
}

// "limbeck.video-dit/1": a name, a slash, a number.
bool is_capability(std::string_view text) {
  const auto slash = text.rfind('/');
  if (slash == std::string_view::npos || slash == 0 || slash + 1 == text.size()) {
    return false;
  }
  const auto name = text.substr(0, slash);
  const auto revision = text.substr(slash + 1);
  return std::all_of(
             name.begin(), name.end(),
             [](char c) { return is_lower_or_digit(c) || c == '.' || c == '-' || c == '_'; }) &&
         std::all_of(revision.begin(), revision.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_torch_library(const std::string& soname) {
  return soname.starts_with("libtorch") || soname.starts_with("libc10");
}

std::string quoted(const char* text) { return text == nullptr ? "NULL" : cat("'", text, "'"); }

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

Faults check_abi_version(const std::string& abi) {
  if (abi.empty()) {
    return {"the note does not say which ABI it was built for: expected a line like 'abi=1.0'"};
  }
  char* end = nullptr;
  const unsigned long major = std::strtoul(abi.c_str(), &end, 10);
  if (end == abi.c_str() || *end != '.') {
    return {cat("the note has abi '", abi, "', expected a version like '1.0'")};
  }
  if (major != LB_ABI_MAJOR) {
    return {cat("it was built for ABI ", abi, ", this limbeck has ABI ", LB_ABI_MAJOR, ".",
                LB_ABI_MINOR, "; another major version cannot be loaded")};
  }
  return {};
}

Faults check_identity(const lb_plugin& plugin, const PluginNote& note) {
  Faults faults;
  const auto agree = [&faults](const char* what, const char* table, const std::string& in_note) {
    if (table == nullptr || in_note != table) {
      faults.push_back(cat("its ", what, " is ", quoted(table), " in its table and '", in_note,
                           "' in its file's note; they must be equal"));
    }
  };
  if (plugin.id == nullptr || !is_plugin_id(plugin.id)) {
    faults.push_back(cat("its id is ", quoted(plugin.id),
                         ", expected a reverse domain like 'org.example.flow'"));
  }
  if (plugin.version == nullptr || !is_semantic_version(plugin.version)) {
    faults.push_back(cat("its version is ", quoted(plugin.version), ", expected one like '1.2.3'"));
  }
  if (plugin.license == nullptr || *plugin.license == '\0') {
    faults.push_back("it names no licence, expected an SPDX identifier like 'Apache-2.0'");
  }
  agree("id", plugin.id, note.id);
  agree("version", plugin.version, note.version);
  agree("torch tag", plugin.torch_tag == nullptr ? "none" : plugin.torch_tag, note.torch);
  return faults;
}

Faults check_components(const lb_plugin& plugin) {
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
    const Faults own = check_component(*component);
    faults.insert(faults.end(), own.begin(), own.end());
    if (component->kind != nullptr && component->name != nullptr &&
        !seen.emplace(component->kind, component->name).second) {
      faults.push_back(
          cat("component '", component->name, "' of kind ", component->kind, " is offered twice"));
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
    if (!is_capability(component.provides[i])) {
      faults.push_back(cat("it provides '", component.provides[i],
                           "', expected a capability like 'limbeck.video-dit/1'"));
    }
  }
  return faults;
}

Faults check_inside(const lb_component& component) {
  Faults faults;
  if (component.name == nullptr || !is_component_name(component.name)) {
    faults.push_back(cat("its name is ", quoted(component.name), ", expected [a-z0-9_]+"));
  }
  if (component.doc == nullptr || *component.doc == '\0') {
    faults.push_back("it has no doc; the first line is what `limbeck plugin list` shows");
  }
  const auto append = [&faults](const Faults& more) {
    faults.insert(faults.end(), more.begin(), more.end());
  };
  append(check_capabilities(component));
  const auto kinds = known_kinds();
  if (component.kind == nullptr ||
      std::find(kinds.begin(), kinds.end(), component.kind) == kinds.end()) {
    faults.push_back(
        cat("its kind is ", quoted(component.kind), ", this limbeck knows ", join(kinds)));
    return faults;
  }
  append(check_options(component.options, component.kind));
  append(check_vtable(component));
  return faults;
}

}  // namespace

bool is_component_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(),
                                      [](char c) { return is_lower_or_digit(c) || c == '_'; });
}

Faults check_file(const ElfFacts& facts, std::string_view host_tag) {
  if (!facts.has_note) {
    return {
        "it is a shared library, but not a plugin of limbeck: it has no note "
        "'.note.limbeck', which limbeck_add_plugin puts into one"};
  }
  Faults faults = check_abi_version(facts.note.abi);
  if (!faults.empty()) {
    return faults;
  }
  const bool is_native = facts.note.torch != "none";
  const auto torch = std::find_if(facts.needed.begin(), facts.needed.end(), is_torch_library);
  if (!is_native && torch != facts.needed.end()) {
    faults.push_back(cat("it says that it does not share libtorch, but needs ", *torch,
                         "; build it with `limbeck_add_plugin(... NATIVE ...)`, or without "
                         "libtorch"));
  }
  if (is_native && facts.note.torch != host_tag) {
    faults.push_back(
        cat("it was built for another libtorch: ", tag_difference(facts.note.torch, host_tag)));
  }
  return faults;
}

Faults check_plugin(const lb_plugin& plugin, const PluginNote& note) {
  if (plugin.struct_size < sizeof(lb_plugin)) {
    return {cat("its lb_plugin has struct_size ", plugin.struct_size, ", expected at least ",
                sizeof(lb_plugin))};
  }
  if (plugin.min_host_minor > LB_ABI_MINOR) {
    return {cat("it needs ABI ", LB_ABI_MAJOR, ".", plugin.min_host_minor,
                " or later, this limbeck has ABI ", LB_ABI_MAJOR, ".", LB_ABI_MINOR)};
  }
  Faults faults = check_identity(plugin, note);
  const Faults inside = check_components(plugin);
  faults.insert(faults.end(), inside.begin(), inside.end());
  return faults;
}

Faults check_component(const lb_component& component) {
  if (component.struct_size < sizeof(lb_component)) {
    return {cat("a component has struct_size ", component.struct_size, ", expected at least ",
                sizeof(lb_component))};
  }
  Faults faults = check_inside(component);
  for (auto& fault : faults) {
    fault = cat("component ", quoted(component.name), ": ", fault);
  }
  return faults;
}

}  // namespace limbeck
