// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/folders.hpp"

#include <algorithm>
#include <charconv>
#include <system_error>

#include "core/base/error.hpp"
#include "core/base/files.hpp"
#include "core/base/log.hpp"
#include "core/base/text.hpp"

namespace limbeck {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "checkpoint-";

[[noreturn]] void damaged(const fs::path& folder, const std::string& what) {
  throw Error(Fault::kData, cat(folder.string(), ": ", what));
}

uint64_t size_of(const fs::path& folder, const std::string& name) {
  std::error_code failed;
  const auto size = fs::file_size(folder / name, failed);
  if (failed) {
    damaged(folder, cat("cannot read ", name, ": ", failed.message()));
  }
  return size;
}

// Names of folders that only have weights: exports.
std::vector<std::string> exports_in(const fs::path& output_dir) {
  std::vector<std::string> names;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(output_dir / "export", failed)) {
    names.push_back("export/" + entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string skipped_text(const LatestCheckpoint& latest) {
  return latest.skipped.empty() ? "" : "; skipped: " + join(latest.skipped, "; ");
}

fs::path take_latest(const LatestCheckpoint& latest, const fs::path& output_dir) {
  if (latest.folder.has_value()) {
    for (const auto& skipped : latest.skipped) {
      log::warn("checkpoint", "skipped " + skipped);
    }
    return *latest.folder;
  }
  const auto exports = exports_in(output_dir);
  throw Error(
      Fault::kData,
      cat("there is no complete checkpoint in ", output_dir.string(), skipped_text(latest),
          exports.empty() ? "" : cat("; ", join(exports), " cannot be resumed")),
      exports.empty()
          ? "name another checkpoint, or remove the damaged ones to start from the beginning"
          : "weights without the state of the optimizer start a new run: name them in "
            "init_from, and leave --resume-from-checkpoint out");
}

// Of a checkpoint that was named: what is wrong, and what could be taken instead.
[[noreturn]] void refuse(const fs::path& folder, const Error& error) {
  const auto latest = latest_checkpoint(folder.parent_path());
  throw Error(Fault::kData, error.message(),
              latest.folder.has_value()
                  ? cat("the newest complete checkpoint beside it is ", latest.folder->string())
                  : "there is no complete checkpoint beside it");
}

}  // namespace

std::string checkpoint_name(int64_t step) { return cat(kPrefix, step); }

int64_t step_of_checkpoint(const std::string& name) {
  if (!name.starts_with(kPrefix)) {
    return -1;
  }
  int64_t step = -1;
  const auto [end, error] =
      std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
  return error == std::errc() && step >= 0 && name == checkpoint_name(step) ? step : -1;
}

std::vector<CheckpointFolder> list_checkpoints(const fs::path& output_dir) {
  std::vector<CheckpointFolder> found;
  std::error_code failed;
  fs::directory_iterator entries(output_dir, failed);
  if (failed == std::errc::no_such_file_or_directory) {
    return found;
  }
  if (failed) {
    throw Error(Fault::kData, cat("cannot read ", output_dir.string(), ": ", failed.message()));
  }
  for (const auto& entry : entries) {
    const int64_t step = step_of_checkpoint(entry.path().filename().string());
    if (step >= 0 && entry.is_directory()) {
      found.push_back({entry.path(), step});
    }
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.step > b.step; });
  return found;
}

std::string completion_of(const std::string& record) {
  return cat(kRecordFile, " xxh3 ", digest_text(digest_of(record).xxh3), "\n");
}

CheckpointRecord open_checkpoint(const fs::path& folder) {
  if (!fs::is_directory(folder)) {
    damaged(folder, "there is no such folder");
  }
  if (!fs::exists(folder / kCompleteFile)) {
    damaged(folder, fs::exists(folder / kRecordFile)
                        ? "it is not complete: COMPLETE is missing"
                        : "it is not a checkpoint of limbeck: it has neither limbeck.json nor "
                          "COMPLETE");
  }
  const auto text = read_file(folder / kRecordFile);
  if (read_file(folder / kCompleteFile) != completion_of(text)) {
    damaged(folder, "it is damaged: limbeck.json is not the one that COMPLETE belongs to");
  }
  auto record = CheckpointRecord::from_json(text, folder / kRecordFile);
  const int64_t named = step_of_checkpoint(folder.filename().string());
  if (named >= 0 && named != record.step) {
    damaged(folder, cat("it is the checkpoint of step ", record.step, " under another name"));
  }
  for (const auto& file : record.files) {
    const uint64_t size = size_of(folder, file.path);
    if (size != file.digest.bytes) {
      damaged(folder, cat("it is damaged: ", file.path, " has ", size, " bytes, expected ",
                          file.digest.bytes));
    }
  }
  return record;
}

CheckpointRecord verify_checkpoint(const fs::path& folder) {
  auto record = open_checkpoint(folder);
  for (const auto& file : record.files) {
    if (digest_of_file(folder / file.path).xxh3 != file.digest.xxh3) {
      damaged(folder, cat("it is damaged: ", file.path, " does not have the hash that was saved"));
    }
  }
  return record;
}

LatestCheckpoint latest_checkpoint(const fs::path& output_dir) {
  LatestCheckpoint latest;
  for (const auto& [path, step] : list_checkpoints(output_dir)) {
    try {
      verify_checkpoint(path);
      latest.folder = path;
      return latest;
    } catch (const Error& error) {
      latest.skipped.push_back(error.message());
    }
  }
  return latest;
}

std::optional<fs::path> resolve_checkpoint(const std::string& argument,
                                           const fs::path& output_dir) {
  if (argument == "latest") {
    const auto latest = latest_checkpoint(output_dir);
    if (!latest.folder.has_value() && latest.skipped.empty() && exports_in(output_dir).empty()) {
      return std::nullopt;
    }
    return take_latest(latest, output_dir);
  }
  fs::path folder = fs::path(argument).lexically_normal();
  if (!folder.has_filename()) {
    folder = folder.parent_path();  // "x/" is x
  }
  if (!fs::exists(folder)) {
    throw Error(Fault::kData, cat("there is no checkpoint ", folder.string()),
                "name a folder checkpoint-<step>, or say latest");
  }
  if (folder.filename() == kDcpFolder) {
    folder = folder.parent_path();
  }
  if (!fs::exists(folder / kRecordFile) && !list_checkpoints(folder).empty()) {
    return take_latest(latest_checkpoint(folder), folder);
  }
  try {
    verify_checkpoint(folder);
  } catch (const Error& error) {
    refuse(folder, error);
  }
  return folder;
}

}  // namespace limbeck
