// SPDX-License-Identifier: Apache-2.0
// Any text may be named as a manifest: load_manifest() gives a Manifest or throws Error. It is
// checked against the host's tables and those of a plugin with a component of every kind.
#include <cstdio>
#include <optional>

#include "core/base/error.hpp"
#include "core/base/log.hpp"
#include "core/manifest/manifest.hpp"
#include "core/plugin/registry.hpp"
#include "input.hpp"

namespace {

// One registry for all inputs: plugins are loaded once and stay.
limbeck::Registry& registry() {
  static auto& plugins = []() -> limbeck::Registry& {
    setenv("LIMBECK_PLUGIN_PATH", LIMBECK_TEST_PLUGIN_DIR, 1);
    limbeck::log::setup(limbeck::log::Level::kError);
    return *new limbeck::Registry;
  }();
  return plugins;
}

// What is accepted is written next to the results: it must be accepted again, unchanged.
void check_resolved(const std::string& resolved) {
  static const limbeck::fuzz::InputFile file;
  file.set(reinterpret_cast<const uint8_t*>(resolved.data()), resolved.size());
  std::string again;
  try {
    again = limbeck::load_manifest(file.path(), {}, registry()).resolved;
  } catch (const limbeck::Error& error) {
    again = error.what();
  }
  if (again != resolved) {
    std::fprintf(stderr, "resolved:\n%s\nand again:\n%s\n", resolved.c_str(), again.c_str());
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const limbeck::fuzz::InputFile file;
  file.set(data, size);
  std::optional<std::string> resolved;
  try {
    resolved = limbeck::load_manifest(file.path(), {}, registry()).resolved;
  } catch (const limbeck::Error&) {
    return 0;
  }
  check_resolved(*resolved);
  return 0;
}
