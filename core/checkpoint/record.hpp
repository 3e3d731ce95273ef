// SPDX-License-Identifier: Apache-2.0
// limbeck.json: what a checkpoint says of itself. No libtorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/base/export.hpp"
#include "core/dcp/writer.hpp"

namespace limbeck {

inline constexpr const char* kRecordFile = "limbeck.json";

// "0123456789abcdef": a hash as records have it.
LIMBECK_API std::string digest_text(uint64_t hash);

// Of a text that is, or will be, a file.
LIMBECK_API FileDigest digest_of(std::string_view text);

struct CheckpointFile {
  std::string path;  // within the checkpoint: "dcp/__0_0.distcp"
  FileDigest digest;
};

struct LIMBECK_API CheckpointRecord {
  // Raised when a reader of the version before could take a checkpoint for something else.
  static constexpr int64_t kVersion = 1;

  int64_t version = kVersion;
  int64_t step = 0;                   // training steps that are done
  std::string saved;                  // UTC, "2026-01-31T12:00:00Z"
  std::vector<CheckpointFile> files;  // all but limbeck.json and COMPLETE
  // What the run says of itself, by name: "run_id", "limbeck", "libtorch", "plugins", "world",
  // "roles", "components", "data". See docs/checkpoint-format.md.
  nlohmann::ordered_json facts = nlohmann::ordered_json::object();

  // The text of limbeck.json.
  std::string to_json() const;
  // Throws Error(kData) that names `path`, for text that is no such record, or of a newer version.
  static CheckpointRecord from_json(std::string_view text, const std::filesystem::path& path);
};

}  // namespace limbeck
