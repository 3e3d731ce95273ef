// SPDX-License-Identifier: Apache-2.0
// Everything a plugin in C++ needs, and LB_PLUGIN, which makes it one:
//
//   LB_PLUGIN(lb::loss<Huber>("huber", "Huber loss of the velocity."),
//             lb::prepare<Crop>("crop", "Cuts clips to a length."))
//
// once per library. limbeck_add_plugin() of the CMake package defines LB_PLUGIN_ID, _VERSION and
// _LICENSE and writes the same facts into a note of the file, which the host reads before it runs
// any code.
#pragma once

#include <iterator>

#include <limbeck/abi.h>
#include <limbeck/batch.hpp>
#include <limbeck/callback.hpp>
#include <limbeck/component.hpp>
#include <limbeck/dataset.hpp>
#include <limbeck/error.hpp>
#include <limbeck/group.hpp>
#include <limbeck/loss.hpp>
#include <limbeck/method.hpp>
#include <limbeck/network.hpp>
#include <limbeck/options.hpp>
#include <limbeck/prepare.hpp>
#include <limbeck/step.hpp>
#include <limbeck/tensor.hpp>
#include <limbeck/tracker.hpp>

#ifdef LB_PLUGIN_NATIVE
#include <limbeck/torch_tag.h>
#else
#define LB_TORCH_TAG nullptr
#endif

#ifndef LB_PLUGIN_LICENSE
#define LB_PLUGIN_LICENSE "NOASSERTION"
#endif

namespace lb {
inline namespace v1 LB_HIDDEN {

// The description behind the entry symbol; lives as long as the process.
template <size_t n>
const lb_plugin* plugin(const lb_component* const (&components)[n],
                        const char* id,
                        const char* version,
                        const char* license,
                        const char* torch_tag) {
  auto* made = new lb_plugin{};
  made->struct_size = sizeof(lb_plugin);
  made->abi_minor = LB_ABI_MINOR;
  made->id = id;
  made->version = version;
  made->license = license;
  made->torch_tag = torch_tag;
  made->n_components = static_cast<uint32_t>(n);
  made->components = components;
  made->init = [](const lb_host* host, lb_state**) noexcept { return bind(host); };
  return made;
}

}  // namespace v1
}  // namespace lb

#define LB_PLUGIN(...)                                                                    \
  const lb_plugin* limbeck_plugin_v1(void) {                                              \
    static const lb_component* const lb_components[] = {__VA_ARGS__};                     \
    static const lb_plugin* const lb_description = ::lb::plugin(                          \
        lb_components, LB_PLUGIN_ID, LB_PLUGIN_VERSION, LB_PLUGIN_LICENSE, LB_TORCH_TAG); \
    return lb_description;                                                                \
  }
