// SPDX-License-Identifier: Apache-2.0
// What a run was made of and how it ended, beside its results: run.json and config.resolved.toml.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "core/plugin/registry.hpp"
#include "core/train/run.hpp"

namespace limbeck {

// Replaces values of secret keys in the arguments of a command line: "--set", "method.token=x".
std::vector<std::string> without_secrets(std::vector<std::string> arguments,
                                         const std::vector<std::string>& secret_keys);

// "2026-01-31T12:00:00Z".
std::string now_text();

class RunRecord {
 public:
  // Writes both files, run.json with outcome "running". `arguments` is the command line. Throws
  // Error(kData). [control]
  RunRecord(const Run& run, const Registry& registry, const std::vector<std::string>& arguments);
  // The plugins of the run, with the hashes of their files; a list.
  const nlohmann::ordered_json& plugins() const;
  // Says that the run goes on from a checkpoint. Throws Error(kData). [control]
  void set_resumed(const std::filesystem::path& checkpoint);
  // Writes run.json again, with outcome "finished". Throws Error(kData). [control]
  void finish();
  // The same with "stopped" or "failed" and the error. A file that cannot be written is a warning
  // then: `error` counts more. [control]
  void finish(const Error& error);

 private:
  void write(const std::string& outcome);

  std::filesystem::path path_;
  std::shared_ptr<nlohmann::ordered_json> json_;
};

}  // namespace limbeck
