// SPDX-License-Identifier: Apache-2.0
// The command line as values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/log.hpp"
#include "core/manifest/manifest.hpp"

namespace limbeck::host {

// How much of a run `check` and `train --dry-run` do; each stage does those before it too.
enum class DryRun {
  kNone,
  kParse,  // the manifest alone, with the tables of its plugins
  kPlan,   // everything but reading weights; a missing file is an error
  kLoad,   // weights, and the first batch
  kStep,   // one training step; nothing is written
};

enum class Command {
  kText,
  kTrain,
  kCheck,
  kSample,
  kExport,
  kImport,
  kInspect,
  kSchema,
  kPluginList,
  kPluginInfo,
  kPluginCheck,
  kPluginNew
};

// Steps from `first` to `last`; last < first: none.
struct StepRange {
  int64_t first = 0;
  int64_t last = -1;
};

struct Options {
  Command command = Command::kText;
  std::string text;  // kText: what was asked for, help or version
  log::Level log_level = log::Level::kInfo;
  std::vector<std::string> arguments;  // the whole command line, as it was given

  std::filesystem::path config;    // kTrain, kCheck, kSample
  ManifestOptions manifest;        // the same
  DryRun dry_run = DryRun::kNone;  // kTrain, kCheck
  bool prints_config = false;      // kCheck: the resolved manifest, to standard output

  StepRange profile;  // kTrain: steps to record

  std::vector<std::string> prompts;  // kSample; at least one
  std::filesystem::path weights;     // kSample; may be empty
  std::filesystem::path output;      // kSample, kExport, kImport

  std::string role;            // kExport, kImport
  std::filesystem::path base;  // kExport, kImport; may be empty
  bool overwrites = false;     // kExport, kImport
  bool merges = false;         // kExport
  bool verifies = false;       // kExport, kImport, kInspect
  bool is_averaged = false;    // kExport: the averaged weights
  std::string dtype;           // kExport, kImport: "fp32", "bf16", "fp16" or ""
  std::string type;            // kImport: whose names they become; may be empty
  std::string prefix;          // kImport, kInspect; may be empty

  // kInspect: at least one, two with is_diff; kExport, kImport: one
  std::vector<std::filesystem::path> paths;
  bool is_diff = false;                 // kInspect
  std::string filter;                   // kInspect
  bool has_stats = false;               // kInspect
  int64_t samples = 3;                  // kInspect; at least 0
  std::filesystem::path contact_sheet;  // kInspect; may be empty

  bool is_json = false;  // kSchema: not Markdown

  // kPluginList: a manifest, names or paths; empty: all there are. kPluginInfo, kPluginCheck: names
  // or paths. kPluginNew: the name
  std::vector<std::string> plugins;
  std::string kind;      // kPluginNew: "loss"
  std::string language;  // kPluginNew: "c" or "c++"
};

// Throws Error(kUsage).
Options parse_options(int argc, const char* const* argv);

}  // namespace limbeck::host
