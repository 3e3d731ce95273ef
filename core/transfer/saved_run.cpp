// SPDX-License-Identifier: Apache-2.0
#include "core/transfer/saved_run.hpp"

#include <charconv>
#include <system_error>

#include "core/base/error.hpp"
#include "core/base/files.hpp"
#include "core/base/text.hpp"
#include "core/weights/strict_json.hpp"

namespace limbeck {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kComplete = "COMPLETE";
constexpr const char* kCheckpointPrefix = "checkpoint-";

bool is_in_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// The step of "checkpoint-12"; -1: another name.
int64_t step_of(const std::string& name) {
  int64_t step = -1;
  if (name.starts_with(kCheckpointPrefix)) {
    const char* end = name.data() + name.size();
    const auto read =
        std::from_chars(name.data() + std::string_view(kCheckpointPrefix).size(), end, step);
    step = read.ec == std::errc() && read.ptr == end ? step : -1;
  }
  return step;
}

fs::path newest_in(const fs::path& folder) {
  fs::path newest;
  int64_t step = -1;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const auto own = step_of(it->path().filename().string());
    if (own > step && is_in_folder(it->path() / kComplete) && is_checkpoint(it->path())) {
      step = own;
      newest = it->path();
    }
  }
  return newest;
}

class RecordReader {
 public:
  explicit RecordReader(const fs::path& path) : path_(path) {}

  const json& member(const json& object, const char* key) const {
    if (!object.is_object() || !object.contains(key)) {
      refuse(cat("has no '", key, "' where one belongs"));
    }
    return object[key];
  }

  std::string text(const json& object, const char* key) const {
    const auto& value = member(object, key);
    if (!value.is_string()) {
      refuse(cat("'", key, "' is ", value.type_name(), ", expected a string"));
    }
    return value.get<std::string>();
  }

  std::string text_or_none(const json& object, const char* key) const {
    return object.is_object() && object.contains(key) && object[key].is_string()
               ? object[key].get<std::string>()
               : "";
  }

  int64_t integer(const json& object, const char* key) const {
    const auto& value = member(object, key);
    if (!value.is_number_integer()) {
      refuse(cat("'", key, "' is ", value.type_name(), ", expected an integer"));
    }
    return value.get<int64_t>();
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(Fault::kData, cat(path_.string(), ": ", what),
                "the file is damaged, or of another version of limbeck");
  }

 private:
  const fs::path& path_;
};

SavedRole read_saved_role(const RecordReader& reader, const json& object) {
  SavedRole role;
  role.type = reader.text(object, "type");
  role.init_from = reader.text_or_none(object, "init_from");
  role.is_averaged = object.value("averaged", false);
  for (const auto& [name, part] : reader.member(object, "parts").items()) {
    SavedPart saved;
    saved.class_name = reader.text(part, "class");
    saved.config = reader.member(part, "config").dump();
    role.parts.emplace(name, std::move(saved));
  }
  return role;
}

}  // namespace

bool is_checkpoint(const fs::path& folder) { return is_in_folder(folder / kCheckpointRecord); }

SavedRun read_saved_run(const fs::path& path) {
  if (!is_in_folder(path)) {
    throw Error(Fault::kData, cat(path.string(), " does not exist"));
  }
  SavedRun run;
  run.folder = is_checkpoint(path) ? path : newest_in(path);
  if (run.folder.empty()) {
    throw Error(Fault::kData,
                cat(path.string(), ": is no checkpoint, and has no complete checkpoint in it"),
                cat("a checkpoint of limbeck is a folder checkpoint-<step> with ",
                    kCheckpointRecord, " in it"));
  }
  if (!is_in_folder(run.folder / kComplete)) {
    throw Error(Fault::kData,
                cat(run.folder.string(), ": was not written completely: it has no ", kComplete));
  }
  const auto file = run.folder / kCheckpointRecord;
  const RecordReader reader(file);
  const json root = parse_strict(read_file(file), file, "the record");
  if (reader.text(root, "format") != "limbeck.checkpoint") {
    reader.refuse("is not the record of a checkpoint");
  }
  if (const auto version = reader.integer(root, "version"); version != 1) {
    reader.refuse(cat("has version ", version, ", this limbeck reads version 1"));
  }
  run.step = reader.integer(root, "step");
  run.saved = reader.text_or_none(root, "saved");
  if (root.contains("limbeck")) {
    run.version = reader.text_or_none(root["limbeck"], "version");
  }
  for (const auto& plugin : reader.member(root, "plugins")) {
    run.plugins.push_back({reader.text(plugin, "name"), reader.text(plugin, "id"),
                           reader.text(plugin, "version"), reader.text_or_none(plugin, "sha256")});
  }
  for (const auto& [name, role] : reader.member(root, "roles").items()) {
    run.roles.emplace(name, read_saved_role(reader, role));
  }
  for (const auto& entry : reader.member(root, "files")) {
    run.files.push_back({reader.text(entry, "path"),
                         static_cast<uint64_t>(reader.integer(entry, "bytes")),
                         reader.text(entry, "xxh3")});
  }
  return run;
}

}  // namespace limbeck
