// SPDX-License-Identifier: Apache-2.0
// What a plugin's file says about itself, read without running any of its code: the note that
// limbeck_add_plugin puts into it, the libraries it needs, its symbols and how it is linked.
#pragma once

#include <string>
#include <vector>

#include "core/base/export.hpp"

namespace limbeck {

// The note ".note.limbeck": owner "limbeck", type 1, lines "key=value".
struct PluginNote {
  std::string abi;      // "1.0": of the header it was compiled with
  std::string id;       // "org.example.flow"
  std::string version;  // "0.1.0"
  std::string torch;    // the torch tag, or "none"
};

// A symbol that other libraries can see.
struct ElfSymbol {
  std::string name;
  bool is_function = false;
};

struct ElfFacts {
  bool has_note = false;
  PluginNote note;                    // empty texts for lines that are missing
  std::vector<std::string> needed;    // "libc.so.6", in the file's order
  std::vector<ElfSymbol> exported;    // less what linkers themselves add, such as "_end"
  std::vector<std::string> imported;  // "malloc"
  bool is_bound_at_load = false;      // -z now
  bool is_never_unloaded = false;     // -z nodelete
  bool has_executable_stack = false;
  bool has_text_relocations = false;
};

// Reads an open file, which may be anything at all. Throws Error(kPlugin) for what is not a
// complete shared library for this machine; the message does not name the file. [any]
LIMBECK_API ElfFacts read_elf(int descriptor);

}  // namespace limbeck
