// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/record.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <set>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/weights/strict_json.hpp"

namespace limbeck {
namespace {

constexpr const char* kFormat = "limbeck.checkpoint";
// Fields of the record itself; every other one is a fact.
constexpr std::array kOwn = {"format", "version", "step", "saved", "files"};

bool is_within(const std::string& path) {
  const std::filesystem::path parts(path);
  if (path.empty() || parts.is_absolute()) {
    return false;
  }
  for (const auto& part : parts) {
    if (part == ".." || part == "." || part.empty()) {
      return false;
    }
  }
  return true;
}

class RecordParser {
 public:
  RecordParser(std::string_view text, const std::filesystem::path& path)
      : path_(path), json_(parse_strict(text, path, "its text")) {
    if (!json_.is_object() || json_.value("format", nlohmann::json()) != kFormat) {
      fail("is not the record of a checkpoint: \"format\" is not \"limbeck.checkpoint\"");
    }
  }

  CheckpointRecord read() {
    CheckpointRecord record;
    record.version = integer(json_, "version");
    if (record.version > CheckpointRecord::kVersion || record.version < 1) {
      throw Error(Fault::kData,
                  cat(path_.string(), ": the checkpoint has format version ", record.version,
                      "; this limbeck reads version ", CheckpointRecord::kVersion),
                  "use the limbeck that wrote it, or a newer one");
    }
    record.step = integer(json_, "step");
    record.saved = text(json_, "saved");
    const auto& files = member(json_, "files");
    if (!files.is_array()) {
      fail("\"files\" is not a list");
    }
    std::set<std::string> names;
    for (const auto& file : files) {
      record.files.push_back(read_file(file));
      if (!names.insert(record.files.back().path).second) {
        fail(cat("names '", record.files.back().path, "' twice"));
      }
    }
    for (const auto& [name, value] : json_.items()) {
      if (std::find(kOwn.begin(), kOwn.end(), name) == kOwn.end()) {
        record.facts[name] = value;
      }
    }
    return record;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(Fault::kData, cat(path_.string(), " ", what));
  }

  const nlohmann::json& member(const nlohmann::json& object, const char* name) const {
    const auto found = object.find(name);
    if (found == object.end()) {
      fail(cat("has no \"", name, "\""));
    }
    return *found;
  }

  int64_t integer(const nlohmann::json& object, const char* name) const {
    const auto& value = member(object, name);
    if (!value.is_number_integer() || value.get<int64_t>() < 0) {
      fail(cat("\"", name, "\" is not a number from 0"));
    }
    return value.get<int64_t>();
  }

  std::string text(const nlohmann::json& object, const char* name) const {
    const auto& value = member(object, name);
    if (!value.is_string()) {
      fail(cat("\"", name, "\" is not text"));
    }
    return value.get<std::string>();
  }

  CheckpointFile read_file(const nlohmann::json& entry) const {
    if (!entry.is_object()) {
      fail("\"files\" has something that is no file");
    }
    CheckpointFile file;
    file.path = text(entry, "path");
    if (!is_within(file.path)) {
      fail(cat("names a file outside the checkpoint: '", file.path, "'"));
    }
    file.digest.bytes = static_cast<uint64_t>(integer(entry, "bytes"));
    const auto hex = text(entry, "xxh3");
    const auto [end, error] =
        std::from_chars(hex.data(), hex.data() + hex.size(), file.digest.xxh3, 16);
    if (error != std::errc() || end != hex.data() + hex.size() || hex.size() != 16) {
      fail(cat("\"xxh3\" of '", file.path, "' is not a number of 16 hexadecimal digits"));
    }
    return file;
  }

  const std::filesystem::path& path_;
  nlohmann::json json_;
};

}  // namespace

std::string digest_text(uint64_t hash) {
  std::array<char, 20> text{};
  std::snprintf(text.data(), text.size(), "%016" PRIx64, hash);
  return text.data();
}

FileDigest digest_of(std::string_view text) {
  return {text.size(), XXH3_64bits(text.data(), text.size())};
}

std::string CheckpointRecord::to_json() const {
  nlohmann::ordered_json whole = {
      {"format", kFormat}, {"version", version}, {"step", step}, {"saved", saved}};
  whole.update(facts);
  auto list = nlohmann::ordered_json::array();
  for (const auto& file : files) {
    list.push_back({{"path", file.path},
                    {"bytes", file.digest.bytes},
                    {"xxh3", digest_text(file.digest.xxh3)}});
  }
  whole["files"] = std::move(list);
  return whole.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

CheckpointRecord CheckpointRecord::from_json(std::string_view text,
                                             const std::filesystem::path& path) {
  return RecordParser(text, path).read();
}

}  // namespace limbeck
