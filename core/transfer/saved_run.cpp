// SPDX-License-Identifier: Apache-2.0
#include "core/transfer/saved_run.hpp"

#include <system_error>

#include "core/base/error.hpp"
#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/folders.hpp"

namespace limbeck {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

fs::path newest_in(const fs::path& folder) {
  for (const auto& checkpoint : list_checkpoints(folder)) {
    try {
      open_checkpoint(checkpoint.path);
      return checkpoint.path;
    } catch (const Error& error) {
      log::warn("checkpoint", "skipped " + error.message());
    }
  }
  throw Error(
      Fault::kData,
      cat(folder.string(), ": is no checkpoint, and has no complete checkpoint in it"),
      cat("a checkpoint of limbeck is a folder checkpoint-<step> with ", kRecordFile, " in it"));
}

SavedRole read_saved_role(const ordered_json& object) {
  SavedRole role;
  role.type = object.at("type").get<std::string>();
  role.init_from = object.at("init_from").get<std::string>();
  role.is_averaged = object.at("averaged").get<bool>();
  role.parameters = object.at("parameters").get<int64_t>();
  for (const auto& [name, part] : object.at("parts").items()) {
    role.parts.emplace(name,
                       SavedPart{part.at("class").get<std::string>(), part.at("config").dump()});
  }
  for (const auto& adapter : object.value("adapters", ordered_json::array())) {
    role.adapters.push_back(parse_adapter_config(adapter.dump(), kRecordFile));
  }
  return role;
}

void read_facts(const ordered_json& facts, SavedRun& run) {
  run.version = facts.at("limbeck").get<std::string>();
  for (const auto& plugin : facts.at("plugins")) {
    run.plugins.push_back({plugin.at("name").get<std::string>(), plugin.at("id").get<std::string>(),
                           plugin.at("version").get<std::string>(),
                           plugin.at("sha256").get<std::string>()});
  }
  for (const auto& [name, role] : facts.at("roles").items()) {
    run.roles.emplace(name, read_saved_role(role));
  }
}

}  // namespace

bool is_checkpoint(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kRecordFile, ignored);
}

SavedRun read_saved_run(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    throw Error(Fault::kData, cat(path.string(), ": there is no such folder"));
  }
  SavedRun run;
  run.folder = is_checkpoint(path) ? path : newest_in(path);
  run.record = open_checkpoint(run.folder);
  try {
    read_facts(run.record.facts, run);
  } catch (const nlohmann::json::exception& error) {
    throw Error(Fault::kData, cat((run.folder / kRecordFile).string(), ": ", error.what()),
                "it was written by another version of limbeck");
  }
  return run;
}

}  // namespace limbeck
