// SPDX-License-Identifier: Apache-2.0
// What a plugin offers, as text for a person: `limbeck plugin info`.
#pragma once

#include <string>

#include "core/base/export.hpp"
#include "core/plugin/registry.hpp"

namespace limbeck {

// File, versions, libraries and symbols of a loaded plugin. Throws Error(kPlugin) if its file is
// gone.
LIMBECK_API std::string info_text(const Library& library);

// One component: documentation, capabilities, roles, entries, and every option with its type,
// default, range and sentence.
LIMBECK_API std::string info_text(const Component& component);

}  // namespace limbeck
