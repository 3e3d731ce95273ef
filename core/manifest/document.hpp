// SPDX-License-Identifier: Apache-2.0
// The keys of a manifest as documents, made from the tables that a manifest is checked against.
#pragma once

#include <string>

#include "core/base/export.hpp"
#include "core/plugin/registry.hpp"

namespace limbeck {

// Every key of the host, then the options of every component of `registry`, as Markdown.
LIMBECK_API std::string to_markdown(const Registry& registry);

// The same as a JSON Schema (2020-12) of a manifest, for editors that complete and check TOML. What
// components of other plugins take is left open.
LIMBECK_API std::string to_json_schema(const Registry& registry);

}  // namespace limbeck
