// SPDX-License-Identifier: Apache-2.0
// Any file may be named as a plugin: read_elf() gives its facts or throws Error, whatever it holds.
#include "core/base/error.hpp"
#include "core/plugin/checks.hpp"
#include "core/plugin/elf_note.hpp"
#include "core/plugin/host_table.hpp"
#include "input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const limbeck::fuzz::InputFile file;
  file.set(data, size);
  try {
    const auto facts = limbeck::read_elf(file.descriptor());
    limbeck::check_file(facts, limbeck::host_torch_tag());
  } catch (const limbeck::Error&) {
  }
  return 0;
}
