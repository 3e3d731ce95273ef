// SPDX-License-Identifier: Apache-2.0
// What must hold for the tables of a plugin before anything in them is used. Each check is a
// sentence for the plugin's author: what is wrong, got, expected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <limbeck/abi.h>

#include "core/base/export.hpp"
#include "core/plugin/elf_note.hpp"

namespace limbeck {

// Faults found, in the order of the tables. Each begins with where: "component 'x': ...".
using Faults = std::vector<std::string>;

// [a-z0-9_]+, not too long.
LIMBECK_API bool is_component_name(std::string_view name);
// "limbeck.video-dit/1": a name, a slash, a number.
bool is_capability(std::string_view text);

// What a file says about itself (no code of it ran): versions, libtorch or not, what it exports.
// `host_tag` is the torch tag of this host. Throws Error(kPlugin) that says what to do.
LIMBECK_API void check_file(const ElfFacts& facts, std::string_view host_tag);

// The description and every component of it, against the note of its file. Throws Error(kPlugin)
// with all faults that says what to do.
LIMBECK_API void check_plugin(const lb_plugin& plugin, const PluginNote& note);

// How large a struct of the header may be: those of a later header may be longer than this host's,
// those of the host's own may not.
enum class Header { kThis, kLater };

// One component: name, options, capabilities, vtable.
LIMBECK_API Faults check_component(const lb_component& component, Header header = Header::kThis);

// The vtable of a component whose kind is known: size, required functions, roles and names.
Faults check_vtable(const lb_component& component, Header header);

// struct_size or stride of `what` against the host's; at most one fault.
Faults check_size(const std::string& what, uint32_t size, size_t known, Header header);

// A table of options. `kind` is that of the component: keys that the host itself reads in the
// component's table are refused.
LIMBECK_API Faults check_options(const lb_options& options,
                                 std::string_view kind,
                                 Header header = Header::kThis);

// Every kind of component that this host knows.
LIMBECK_API std::vector<std::string> known_kinds();

// Which keys of a component's table in the manifest are the host's own: "type", "roles", ...
LIMBECK_API const std::vector<std::string>& host_keys(std::string_view kind);

}  // namespace limbeck
