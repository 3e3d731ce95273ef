// SPDX-License-Identifier: Apache-2.0
// load_manifest(): the stages of draft.hpp, in order.
#include <system_error>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/files.hpp"
#include "core/base/text.hpp"
#include "core/manifest/draft.hpp"
#include "core/manifest/overrides.hpp"
#include "core/manifest/toml.hpp"

namespace limbeck {
namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
  try {
    return read_file(path);
  } catch (const Error& error) {
    throw Error(Fault::kManifest, "manifest: " + error.message(), "name a TOML file");
  }
}

fs::path folder_of(const fs::path& path) {
  std::error_code failed;
  const fs::path whole = fs::absolute(path, failed);
  return (failed ? path : whole).lexically_normal().parent_path();
}

// A document that is not TOML has no keys to check: its one fault is all there is to say.
void parse(Draft& draft, const fs::path& path) {
  const std::string text = read_text(path);
  try {
    draft.root = parse_toml(text, draft.file);
    draft.root.at = draft.file_position();
  } catch (const SyntaxFault& fault) {
    draft.diagnostics.error(fault.at, cat("not TOML: ", fault.what()));
    draft.diagnostics.throw_if_errors();
  }
}

}  // namespace

const RoleSpec* Manifest::role(const std::string& name) const {
  for (const auto& role : roles) {
    if (role.name == name) {
      return &role;
    }
  }
  return nullptr;
}

Manifest load_manifest(const fs::path& path, const ManifestOptions& options, Registry& registry) {
  Draft draft;
  draft.file = path.string();
  draft.folder = folder_of(path);
  draft.registry = &registry;
  draft.needs_files = options.needs_files;
  draft.defers_weights = options.defers_weights;
  draft.manifest.path = path;

  parse(draft, path);
  for (const auto& text : options.set) {
    apply_override(draft.root, text, draft.diagnostics);
  }
  check_shape(draft);
  load_plugins(draft);
  find_components(draft);
  apply_aliases(draft);
  read_host_tables(draft, options.output_dir);
  read_role_tables(draft);
  read_components(draft);
  check_roles(draft);
  settle_training(draft);
  check_rules(draft);
  if (draft.diagnostics.has_errors()) {
    draft.diagnostics.add(draft.manifest.missing);  // all faults at once
  }
  draft.diagnostics.throw_if_errors();

  collect_facts(draft);
  collect_secrets(draft);
  const Node resolved = resolve(draft);
  draft.manifest.resolved = to_toml(resolved);
  draft.manifest.explained = to_explained_toml(resolved);
  return std::move(draft.manifest);
}

}  // namespace limbeck
