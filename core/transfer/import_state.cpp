// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/record.hpp"
#include "core/transfer/import_state.hpp"

#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/files.hpp"
#include "core/base/text.hpp"
#include "core/dcp/index.hpp"
#include "core/plugin/host_table.hpp"
#include "core/transfer/output_folder.hpp"
#include "core/transfer/numbers.hpp"
#include "core/transfer/pipeline.hpp"

namespace limbeck {
namespace {

namespace fs = std::filesystem;

fs::path find_state(const fs::path& path) {
  std::error_code ignored;
  for (const char* inner : {"", "dcp", "distributed_checkpoint"}) {
    if (fs::exists(path / inner / kDcpIndexFile, ignored)) {
      return path / inner;
    }
  }
  throw Error(Fault::kData, cat(path.string(), ": is no distributed checkpoint: no ", kDcpIndexFile,
                                " in it, in dcp/ or in distributed_checkpoint/"));
}

// "roles.a.transformer.x" -> "roles.a".
std::string group_of(const std::string& name) {
  const auto first = name.find('.');
  return name.substr(0, first == std::string::npos ? first : name.find('.', first + 1));
}

class Import {
 public:
  explicit Import(const ImportRequest& request)
      : request_(request),
        state_(find_state(request.state)),
        source_(open_dcp_tensors(state_)),
        index_(read_dcp_index(state_)) {}

  ImportReport run() {
    const auto parts = find_parts();
    std::vector<fs::path> sources = {state_};
    if (!request_.base.empty()) {
      sources.push_back(request_.base);
    }
    OutputFolder folder(request_.output, {request_.overwrites, kImportRecord, sources});
    for (const auto& [prefix, part] : parts) {
      write_part(folder.path(), prefix, part);
    }
    count_aside(parts);
    write_record(folder.path(), parts);
    folder.publish();
    return std::move(report_);
  }

 private:
  using Parts = std::vector<std::pair<std::string, std::string>>;  // prefix, folder

  Parts find_parts() const {
    const bool is_named = !request_.prefix.empty();
    const auto prefix = is_named ? request_.prefix : cat("roles.", request_.role, ".");
    std::set<std::string> folders;
    for (auto at = source_->tensors().lower_bound(prefix);
         at != source_->tensors().end() && at->first.starts_with(prefix); ++at) {
      const auto rest = at->first.substr(prefix.size());
      folders.insert(is_named ? "" : rest.substr(0, rest.find('.')));
    }
    if (folders.empty()) {
      std::set<std::string> known;
      for (const auto& [name, shape] : source_->tensors()) {
        known.insert(group_of(name) + ".");
      }
      throw Error(Fault::kData,
                  cat(state_.string(), ": no tensor's name begins with '", prefix, "'"),
                  cat("name another role, or --prefix; names begin with ",
                      first_ten({known.begin(), known.end()}, ", ")));
    }
    Parts parts;
    for (const auto& folder : folders) {
      parts.emplace_back(is_named ? prefix : cat(prefix, folder, "."), folder);
    }
    return parts;
  }

  std::vector<TensorCopy> tensors_behind(const std::string& prefix) {
    std::vector<TensorCopy> copies;
    std::map<std::string, std::string> sources;
    for (auto at = source_->tensors().lower_bound(prefix);
         at != source_->tensors().end() && at->first.starts_with(prefix); ++at) {
      auto name = at->first.substr(prefix.size());
      if (request_.rename) {
        auto published = request_.rename(name);
        report_.renamed += published != name ? 1 : 0;
        name = std::move(published);
      }
      const auto [first, is_new] = sources.emplace(name, at->first);
      if (!is_new) {
        throw Error(Fault::kData,
                    cat(state_.string(), ": '", first->second, "' and '", at->first, "' are both '",
                        name, "'"),
                    "the state holds the weights of two networks, or of one twice: give --prefix");
      }
      const auto* type = at->second.type;
      copies.push_back(
          {name, at->first, request_.type != nullptr && is_floating(*type) ? request_.type : type});
    }
    return copies;
  }

  fs::path base_of(const std::string& part) const {
    return is_pipeline(request_.base) && !part.empty() ? request_.base / part : request_.base;
  }

  void write_part(const fs::path& root, const std::string& prefix, const std::string& part) {
    const auto copies = tensors_behind(prefix);
    const auto folder = part.empty() ? root : root / part;
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) {
      throw Error(Fault::kData, cat(folder.string(), ": cannot make it: ", error.message()));
    }
    for (auto& file : write_component(folder, *source_, copies, request_.shard_limit)) {
      file.path = file.path.lexically_relative(root);
      report_.files.push_back(std::move(file));
    }
    for (const auto& copy : copies) {
      auto shape = source_->shape(copy.source);
      shape.type = copy.type;
      ++report_.tensors;
      report_.bytes += shape.bytes();
    }
    if (!request_.base.empty()) {
      write_file(folder / "config.json", read_file(base_of(part) / "config.json"));
      report_.has_config = true;
    }
    if (request_.verifies) {
      if (!request_.base.empty()) {
        compare_names(*open_weights(base_of(part)), *source_, copies);
      }
      verify_component(folder, *source_, copies);
    }
  }

  void count_aside(const Parts& parts) {
    const auto is_taken = [&](const std::string& name) {
      for (const auto& [prefix, part] : parts) {
        if (name.starts_with(prefix)) {
          return true;
        }
      }
      return false;
    };
    for (const auto& [name, tensor] : index_.tensors) {
      report_.aside[group_of(name)].tensors += is_taken(name) ? 0 : 1;
    }
    for (const auto& [name, item] : index_.values) {
      ++report_.aside[group_of(name)].values;
    }
    std::erase_if(report_.aside, [](const auto& entry) {
      return entry.second.tensors == 0 && entry.second.values == 0;
    });
  }

  void write_record(const fs::path& root, const Parts& parts) const {
    nlohmann::ordered_json record;
    std::error_code ignored;
    record["format"] = "limbeck.import";
    record["version"] = 1;
    record["limbeck"] = version();
    record["state"] = fs::absolute(state_, ignored).lexically_normal().string();
    record["role"] = request_.role;
    record["prefixes"] = nlohmann::ordered_json::array();
    for (const auto& [prefix, part] : parts) {
      record["prefixes"].push_back(prefix);
    }
    record["files"] = nlohmann::ordered_json::array();
    for (const auto& file : report_.files) {
      record["files"].push_back(
          {{"path", file.path.string()}, {"bytes", file.bytes}, {"xxh3", digest_text(file.xxh3)}});
    }
    write_file(root / kImportRecord, record.dump(2) + "\n");
  }

  const ImportRequest& request_;
  fs::path state_;
  std::unique_ptr<TensorFiles> source_;
  DcpIndex index_;
  ImportReport report_;
};

}  // namespace

ImportReport import_state(const ImportRequest& request) { return Import(request).run(); }

}  // namespace limbeck
