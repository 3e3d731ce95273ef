// SPDX-License-Identifier: Apache-2.0
// The command line as values.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/log.hpp"
#include "core/manifest/manifest.hpp"

namespace limbeck::host {

enum class Command {
  kText,
  kTrain,
  kCheck,
  kSample,
  kPluginList,
  kPluginInfo,
  kPluginCheck,
  kPluginNew
};

struct Options {
  Command command = Command::kText;
  std::string text;  // kText: what was asked for, help or version
  log::Level log_level = log::Level::kInfo;

  std::filesystem::path config;  // kTrain, kCheck, kSample
  ManifestOptions manifest;      // the same
  bool is_dry_run = false;       // kTrain

  std::vector<std::string> prompts;  // kSample; at least one
  std::filesystem::path weights;     // kSample; may be empty
  std::filesystem::path output;      // kSample

  // kPluginList: a manifest, names or paths; empty: all there are. kPluginInfo, kPluginCheck: names
  // or paths. kPluginNew: the name
  std::vector<std::string> plugins;
  std::string kind;      // kPluginNew: "loss"
  std::string language;  // kPluginNew: "c" or "c++"
};

// Throws Error(kUsage).
Options parse_options(int argc, const char* const* argv);

}  // namespace limbeck::host
