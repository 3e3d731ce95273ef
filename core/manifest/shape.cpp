// SPDX-License-Identifier: Apache-2.0
// The stage that looks at the outline of a manifest.
#include <algorithm>

#include "core/base/text.hpp"
#include "core/manifest/component_table.hpp"
#include "core/manifest/draft.hpp"
#include "core/manifest/option_table.hpp"
#include "core/manifest/tables.hpp"
#include "core/manifest/toml.hpp"

namespace limbeck {
namespace {

constexpr const char* kHostTables[] = {
    "run",
    "models",
    "method",
    "callbacks",
    "pipeline",
    "training.optimizer",
    "training.loop",
    "training.distributed",
    "training.model",
    "training.performance",
    "training.checkpoint",
    "training.tracker",
};

std::vector<lb_option> tables_among(std::vector<lb_option> options) {
  std::erase_if(options, [](const lb_option& option) { return (option.flags & kElsewhere) == 0; });
  return options;
}

// Names go into paths, file names and metrics.
bool is_name(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

// Members of [models] and [callbacks] are tables whatever they are called.
void check_members(const Draft& draft, const char* name, Diagnostics& faults) {
  for (const auto& member : *inner_table(draft.root, name).table()) {
    if (!is_name(member.key)) {
      faults.error(member.key_at, cat(name,
                                      ": expected a name of letters, digits, \"_\" and "
                                      "\"-\", got ",
                                      quoted(member.key)));
    }
    if (member.node.table() == nullptr) {
      faults.error(member.node.at,
                   cat(name, ".", member.key, ": expected a table, got ", describe(member.node)));
    }
  }
}

void add_missing_tables(Draft& draft) {
  for (const char* path : kHostTables) {
    std::string blocked;
    make_path(draft.root, path, draft.file_position(), blocked);
  }
}

}  // namespace

void check_shape(Draft& draft) {
  const Node& training = inner_table(draft.root, "training");
  check_keys(draft.root, top_options(), "", draft.scope());
  check_keys(training, training_options(), "training", draft.scope());

  Diagnostics faults;
  const CheckScope scope{draft.folder, faults};
  check_values(draft.root, tables_among(top_options()), "", scope);
  check_values(training, tables_among(training_options()), "training", scope);
  check_members(draft, "models", faults);
  check_members(draft, "callbacks", faults);
  for (const auto& item : faults.items()) {
    draft.diagnostics.error(item.at, item.message, item.hint);
  }
  if (faults.has_errors()) {
    draft.diagnostics.throw_if_errors();
  }
  add_missing_tables(draft);
}

}  // namespace limbeck
