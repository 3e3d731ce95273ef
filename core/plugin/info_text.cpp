// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/info_text.hpp"

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

#include "core/base/text.hpp"
#include "core/manifest/option_table.hpp"
#include "core/manifest/strided.hpp"
#include "core/plugin/elf_note.hpp"
#include "core/plugin/plugin_file.hpp"
#include "core/plugin/plugin_text.hpp"

namespace limbeck {
namespace {

// A name and what is said about it; the second column of a table begins at one place.
using Line = std::pair<std::string, std::string>;

std::string aligned(const std::vector<Line>& lines, const std::string& indent) {
  size_t width = 0;
  for (const auto& [name, text] : lines) {
    width = std::max(width, name.size());
  }
  std::string out;
  for (const auto& [name, text] : lines) {
    out += cat(indent, name, std::string(width + 2 - name.size(), ' '), text, "\n");
  }
  return out;
}

std::string indented(const char* text, const std::string& indent) {
  std::istringstream lines(text);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    out += line.empty() ? "\n" : indent + line + "\n";
  }
  return out;
}

std::vector<std::string> list_of(const char* const* names) {
  std::vector<std::string> list;
  for (; names != nullptr && *names != nullptr; ++names) {
    list.emplace_back(*names);
  }
  return list;
}

// "rate = 0.1", "data_path", "weights.<key> = 1.0"
std::string left_of(const lb_option& option, const std::string& prefix) {
  const bool has_default = option.fallback != nullptr && option.type != LB_TABLE;
  return prefix + option.name + (has_default ? cat(" = ", option.fallback) : "");
}

std::string right_of(const lb_option& option) {
  std::string text = expectation(option);
  const auto add = [&](const std::string& more) { text += ", " + more; };
  if (option.fallback == nullptr) {
    add("required");
  }
  if ((option.flags & LB_OPT_DEPRECATED) != 0) {
    add("deprecated");
  }
  if ((option.flags & LB_OPT_SECRET) != 0) {
    add("secret");
  }
  if ((option.flags & LB_OPT_ON_RESUME) != 0) {
    add("may change on resume");
  }
  if (option.alias != nullptr) {
    add(cat("another name of ", option.alias));
  }
  return cat(text, ". ", summary(option));
}

void add_options(const lb_options& options, const std::string& prefix, std::vector<Line>& lines) {
  for (const lb_option& option : read_options(options)) {
    lines.emplace_back(left_of(option, prefix), right_of(option));
    const bool is_open = (option.flags & LB_OPT_OPEN) != 0;
    if (option.fields.count == 0) {
      continue;
    }
    if (is_open) {
      const lb_option value = read_options(option.fields).front();
      lines.emplace_back(cat(prefix, option.name, ".<key>"), right_of(value));
    } else {
      add_options(option.fields, cat(prefix, option.name, "."), lines);
    }
  }
}

std::string roles_text(const lb_roles& roles) {
  std::vector<std::string> texts;
  for (const lb_role& role : read_roles(roles)) {
    std::vector<std::string> facts;
    if ((role.flags & LB_ROLE_TRAINED) != 0) {
      facts.emplace_back("trained");
    }
    if ((role.flags & LB_ROLE_SHADOW) != 0) {
      facts.emplace_back("shadow");
    }
    if ((role.flags & LB_ROLE_OPTIONAL) != 0) {
      facts.emplace_back("optional");
    }
    if (!is_empty(role.capabilities)) {
      facts.emplace_back(role.capabilities);
    }
    texts.push_back(facts.empty() ? role.name : cat(role.name, " (", join(facts), ")"));
  }
  return join(texts);
}

// Roles, entries and state, which each kind keeps at a place of its own.
class Facts {
 public:
  explicit Facts(const Component& component) : component_(component) {}

  std::vector<Line> lines() {
    const std::string kind = component_.kind();
    if (kind == "limbeck.method/1") {
      const auto& v = component_.vtable<lb_method_vtable>();
      add(v.roles, v.reads);
      add_state(v.save != nullptr);
    } else if (kind == "limbeck.prepare/1") {
      const auto& v = component_.vtable<lb_prepare_vtable>();
      add(v.needs, v.reads);
      add_list("writes", v.writes);
      add_state(v.save != nullptr);
    } else if (kind == "limbeck.loss/1") {
      const auto& v = component_.vtable<lb_loss_vtable>();
      add(v.needs, v.reads);
      add_state(v.save != nullptr);
    } else if (kind == "limbeck.callback/1") {
      const auto& v = component_.vtable<lb_callback_vtable>();
      add(v.needs, nullptr);
      add_state(v.save != nullptr);
    }
    return std::move(lines_);
  }

 private:
  void add(const lb_roles& roles, const char* const* reads) {
    if (roles.count > 0) {
      lines_.emplace_back("roles", roles_text(roles));
    }
    add_list("reads", reads);
  }
  void add_list(const char* name, const char* const* names) {
    if (const auto list = list_of(names); !list.empty()) {
      lines_.emplace_back(name, join(list));
    }
  }
  void add_state(bool is_saved) {
    if (is_saved) {
      lines_.emplace_back("state", cat("saved, version ", component_.table->state_version));
    }
  }

  const Component& component_;
  std::vector<Line> lines_;
};

}  // namespace

std::string info_text(const Library& library) {
  const lb_plugin& plugin = *library.plugin;
  const PluginFile file(library.path);
  const ElfFacts facts = read_elf(file.descriptor());
  std::vector<std::string> exported;
  for (const auto& symbol : facts.exported) {
    exported.push_back(symbol.name);
  }
  const bool is_native = plugin.torch_tag != nullptr;
  return cat(library.name, " ", plugin.version, "\n") +
         aligned({{"file", library.path.string()},
                  {"id", plugin.id},
                  {"licence", plugin.license},
                  {"ABI", cat(LB_ABI_MAJOR, ".", plugin.abi_minor, ", needs ", LB_ABI_MAJOR, ".",
                              plugin.min_host_minor, " of its host")},
                  {"libtorch", is_native ? cat("shared: ", plugin.torch_tag)
                                         : std::string("not shared, any version will do")},
                  {"needs", join(facts.needed)},
                  {"exports", join(exported)},
                  {"size", cat(file.size(), " bytes")},
                  {"sha256", file.sha256()}},
                 "  ");
}

std::string info_text(const Component& component) {
  std::string out =
      cat(component.name(), ": ", component.kind(), "\n") + indented(component.table->doc, "  ");
  std::vector<Line> lines;
  if (const auto provided = list_of(component.table->provides); !provided.empty()) {
    lines.emplace_back("provides", join(provided));
  }
  for (auto& line : Facts(component).lines()) {
    lines.push_back(std::move(line));
  }
  out += aligned(lines, "  ");
  std::vector<Line> options;
  add_options(component.table->options, "", options);
  if (!options.empty()) {
    out += "  options\n" + aligned(options, "    ");
  }
  return out;
}

}  // namespace limbeck
