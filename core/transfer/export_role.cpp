// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/record.hpp"
#include "core/transfer/export_role.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/files.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/folders.hpp"
#include "core/plugin/host_table.hpp"
#include "core/transfer/merged_tensors.hpp"
#include "core/transfer/output_folder.hpp"
#include "core/transfer/numbers.hpp"
#include "core/transfer/saved_run.hpp"
#include "core/weights/strict_json.hpp"
#include "core/weights/weight_files.hpp"

namespace limbeck {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// The part of a network that says no folder of its own.
constexpr const char* kUnnamedPart = "model";

const SavedRole& find_saved_role(const SavedRun& run, const ExportRequest& request) {
  std::vector<std::string> names;
  for (const auto& [name, role] : run.roles) {
    names.push_back(name);
  }
  const auto found = run.roles.find(request.role);
  if (found == run.roles.end()) {
    const auto close = nearest(request.role, names);
    throw Error(
        Fault::kUsage, cat(run.folder.string(), ": has no role '", request.role, "'"),
        close.empty() ? cat("its roles: ", join(names)) : cat("did you mean '", close, "'?"));
  }
  if (request.is_averaged && !found->second.is_averaged) {
    throw Error(Fault::kUsage,
                cat(run.folder.string(), ": role '", request.role, "' has no averaged weights"),
                "export its live weights, without --weights ema");
  }
  return found->second;
}

// What the numbers of a base are, tensor by tensor.
class ExportBase {
 public:
  ExportBase() = default;
  explicit ExportBase(const fs::path& folder) {
    std::error_code ignored;
    if (folder.empty() || !fs::is_directory(folder, ignored)) {
      return;
    }
    const auto names = file_names(folder);
    if (std::any_of(names.begin(), names.end(), [](const std::string& name) {
          return name.ends_with(kWeightsExtension) || name.ends_with(kIndexExtension);
        })) {
      weights_ = open_weights(folder);
    }
    if (fs::exists(folder / "config.json", ignored)) {
      config_ = folder / "config.json";
    }
  }

  const TensorFiles* weights() const { return weights_.get(); }
  const fs::path& config() const { return config_; }

  // The type that the base has for this name, or, for a new one, for most of its bytes; nullptr: it
  // has no weights.
  const WeightType* type_for(const std::string& name) const {
    if (weights_ == nullptr) {
      return nullptr;
    }
    const auto& tensors = weights_->tensors();
    if (const auto found = tensors.find(name); found != tensors.end()) {
      return found->second.type;
    }
    std::map<const WeightType*, uint64_t> bytes;
    for (const auto& [known, shape] : tensors) {
      bytes[shape.type] += shape.bytes();
    }
    return std::max_element(bytes.begin(), bytes.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; })
        ->first;
  }

 private:
  std::unique_ptr<TensorFiles> weights_;
  fs::path config_;
};

// What begins with `prefix`. An average has weights alone: a tensor that `average` does not have is
// state that is no weight, and taken as it is.
std::vector<TensorCopy> tensors_of(const TensorFiles& source,
                                   const std::string& prefix,
                                   const std::string& average,
                                   const WeightType* type,
                                   const ExportBase& base) {
  std::vector<TensorCopy> copies;
  for (auto at = source.tensors().lower_bound(prefix);
       at != source.tensors().end() && at->first.starts_with(prefix); ++at) {
    TensorCopy copy{at->first.substr(prefix.size()), at->first, at->second.type};
    if (!average.empty() && source.tensors().count(average + copy.name) > 0) {
      copy.source = average + copy.name;
      copy.type = source.shape(copy.source).type;
    }
    if (is_floating(*copy.type)) {
      const auto* wanted = type != nullptr ? type : base.type_for(copy.name);
      copy.type = wanted != nullptr ? wanted : copy.type;
    }
    copies.push_back(std::move(copy));
  }
  return copies;
}

// The base's config.json with the network's options in it; those alone without one.
std::string config_text(const SavedPart& part, const ExportBase& base) {
  auto config = ordered_json::object();
  config["_class_name"] = part.class_name;
  if (!base.config().empty()) {
    const auto own = parse_strict(read_file(base.config()), base.config(), "the configuration");
    config.update(ordered_json::parse(own.dump()));
    config["_class_name"] = part.class_name;
  }
  config.update(ordered_json::parse(part.config));
  return config.dump(2) + "\n";
}

ordered_json record_of(const ExportRequest& request,
                       const SavedRun& run,
                       const ExportReport& report) {
  std::error_code ignored;
  ordered_json record;
  record["format"] = "limbeck.export";
  record["version"] = 1;
  record["limbeck"] = version();
  record["checkpoint"] = fs::absolute(run.folder, ignored).lexically_normal().string();
  record["step"] = run.record.step;
  record["role"] = request.role;
  record["weights"] = request.is_averaged ? "ema" : "live";
  record["dtype"] = request.type != nullptr ? request.type->name
                    : !report.base.empty()  ? "as in the base"
                                            : "as in the checkpoint";
  if (!report.base.empty()) {
    record["base"] = fs::absolute(report.base, ignored).lexically_normal().string();
  }
  record["saved_by"] = {{"limbeck", run.version}, {"saved", run.record.saved}};
  record["plugins"] = ordered_json::array();
  for (const auto& plugin : run.plugins) {
    record["plugins"].push_back({{"name", plugin.name},
                                 {"id", plugin.id},
                                 {"version", plugin.version},
                                 {"sha256", plugin.sha256}});
  }
  record["source_files"] = ordered_json::array();
  for (const auto& file : run.record.files) {
    record["source_files"].push_back({{"path", file.path},
                                      {"bytes", file.digest.bytes},
                                      {"xxh3", digest_text(file.digest.xxh3)}});
  }
  record["files"] = ordered_json::array();
  for (const auto& file : report.files) {
    record["files"].push_back(
        {{"path", file.path.string()}, {"bytes", file.bytes}, {"xxh3", digest_text(file.xxh3)}});
  }
  return record;
}

class Export {
 public:
  explicit Export(const ExportRequest& request)
      : request_(request),
        run_(read_saved_run(request.checkpoint)),
        role_(find_saved_role(run_, request)),
        source_(open_dcp_tensors(run_.folder / kDcpFolder)) {
    report_.checkpoint = run_.folder;
    report_.step = run_.record.step;
    if (role_.adapters.empty()) {
      check_is_whole();
    }
    find_base();
    check_merging();
  }

  ExportReport run() {
    std::vector<fs::path> sources = {run_.folder};
    if (!report_.base.empty()) {
      sources.push_back(report_.base);
    }
    OutputFolder folder(request_.output, {request_.overwrites, kExportRecord, sources});
    if (writes_adapters()) {
      report_.base.clear();
    }
    if (is_pipeline(report_.base)) {
      std::vector<std::string> parts;
      for (const auto& [name, part] : role_.parts) {
        parts.push_back(name);
      }
      report_.copy = copy_pipeline(report_.base, folder.path(), parts, kExportRecord);
    }
    for (const auto& [name, part] : role_.parts) {
      if (writes_adapters()) {
        write_adapters(folder.path(), name);
      } else {
        write_part(folder.path(), name, part);
      }
    }
    write_file(folder.path() / kExportRecord, record_of(request_, run_, report_).dump(2) + "\n");
    folder.publish();
    return std::move(report_);
  }

 private:
  bool writes_adapters() const { return !role_.adapters.empty() && !request_.merges; }

  void check_merging() {
    if (request_.merges && role_.adapters.empty()) {
      throw Error(Fault::kUsage, cat(run_.folder.string(), ": role '", request_.role,
                                     "' has no adapters to merge"));
    }
    if (!request_.merges) {
      return;
    }
    if (report_.base.empty()) {
      report_.base = role_.init_from;
    }
    std::error_code ignored;
    if (report_.base.empty() || !fs::is_directory(report_.base, ignored)) {
      throw Error(Fault::kData,
                  cat("the weights that role '", request_.role, "' was trained on are not there",
                      report_.base.empty() ? "" : ": " + report_.base.string()),
                  "name their folder: --base");
    }
  }

  const AdapterConfig& adapters_of(const std::string& part) const {
    const auto place = std::distance(role_.parts.begin(), role_.parts.find(part));
    return role_.adapters.size() == 1 ? role_.adapters[0]
                                      : role_.adapters.at(static_cast<size_t>(place));
  }

  std::unique_ptr<TensorFiles> base_weights(const std::string& part) const {
    const auto folder = place(report_.base, part);
    return open_weights(find_weight_files(folder, part), folder);
  }

  std::string prefix_of(const std::string& part) const {
    return cat(request_.is_averaged ? "ema." : "roles.", request_.role, ".", part, ".");
  }

  // One folder of PEFT for each part; for one part the output itself.
  void write_adapters(const fs::path& root, const std::string& name) {
    const auto prefix = prefix_of(name);
    std::vector<TensorCopy> copies;
    for (auto at = source_->tensors().lower_bound(prefix);
         at != source_->tensors().end() && at->first.starts_with(prefix); ++at) {
      const auto own = at->first.substr(prefix.size());
      if (own.ends_with(kAdapterA) || own.ends_with(kAdapterB)) {
        copies.push_back({kAdapterPrefix + own, at->first,
                          request_.type != nullptr ? request_.type : at->second.type});
      }
    }
    const auto folder = role_.parts.size() == 1 ? root : root / name;
    fs::create_directories(folder);
    ExportedPart done{role_.parts.size() == 1 ? "" : name, copies.size(), 0, 0};
    auto file = write_component(folder, *source_, copies).at(0);
    if (request_.verifies) {
      verify_component(folder, *source_, copies);
    }
    fs::rename(file.path, folder / kAdapterWeightsFile);
    file.path = fs::relative(folder / kAdapterWeightsFile, root);
    report_.files.push_back(std::move(file));
    write_file(folder / kAdapterConfigFile, adapters_of(name).to_json(role_.init_from));
    for (const auto& copy : copies) {
      done.numbers += source_->shape(copy.source).numel();
      done.bytes += source_->shape(copy.source).numel() * copy.type->bits / 8;
    }
    report_.parts.push_back(std::move(done));
  }

  // Weights that never change are not in a checkpoint.
  void check_is_whole() const {
    const auto prefix = cat("roles.", request_.role, ".");
    int64_t numbers = 0;
    for (auto at = source_->tensors().lower_bound(prefix);
         at != source_->tensors().end() && at->first.starts_with(prefix); ++at) {
      numbers += static_cast<int64_t>(at->second.numel());
    }
    if (numbers == 0 || numbers < role_.parameters) {
      throw Error(Fault::kData,
                  cat(run_.folder.string(), ": has ", numbers, " of the ", role_.parameters,
                      " numbers of role '", request_.role,
                      "'; weights that the run did not change are not saved"),
                  numbers == 0 && !role_.init_from.empty()
                      ? cat("they are where it was loaded from, ", role_.init_from)
                      : "take what the run itself exported at its end");
    }
  }

  void find_base() {
    std::error_code ignored;
    report_.base = request_.base;
    if (!request_.base.empty()) {
      if (!fs::is_directory(request_.base, ignored)) {
        throw Error(Fault::kData, cat(request_.base.string(), ": --base is no folder"));
      }
    } else if (!role_.init_from.empty() && !fs::exists(role_.init_from, ignored)) {
      report_.absent_base = role_.init_from;
    } else if (is_pipeline(role_.init_from)) {
      report_.base = role_.init_from;
    }
    if (!is_pipeline(report_.base)) {
      return;
    }
    for (const auto& [name, part] : role_.parts) {
      if (!fs::is_directory(report_.base / name, ignored)) {
        throw Error(Fault::kData,
                    cat(report_.base.string(), ": is a pipeline without a folder '", name,
                        "', which is what role '", request_.role, "' would replace"));
      }
    }
  }

  // The folder of a part in `root`, the base or what is written.
  fs::path place(const fs::path& root, const std::string& part) const {
    return part == kUnnamedPart || (root == report_.base && !is_pipeline(root)) ? root
                                                                                : root / part;
  }

  void write_part(const fs::path& root, const std::string& name, const SavedPart& part) {
    const ExportBase base(report_.base.empty() ? fs::path() : place(report_.base, name));
    const auto ending = cat(request_.role, ".", name, ".");
    std::unique_ptr<TensorFiles> merged;
    if (request_.merges) {
      merged = std::make_unique<MergedTensors>(base_weights(name), *source_, prefix_of(name),
                                               adapters_of(name));
    }
    const TensorFiles& source = merged != nullptr ? *merged : *source_;
    const auto copies = merged != nullptr ? tensors_of(source, "", "", request_.type, base)
                                          : tensors_of(source, "roles." + ending,
                                                       request_.is_averaged ? "ema." + ending : "",
                                                       request_.type, base);
    const auto folder = place(root, name);
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) {
      throw Error(Fault::kData, cat(folder.string(), ": cannot make it: ", error.message()));
    }
    ExportedPart done{name == kUnnamedPart ? "" : name, copies.size(), 0, 0};
    for (auto& file : write_component(folder, source, copies, request_.shard_limit)) {
      file.path = fs::relative(file.path, root);
      report_.files.push_back(std::move(file));
    }
    const auto config = folder / "config.json";
    write_file(config, config_text(part, base));
    for (const auto& copy : copies) {
      auto shape = source.shape(copy.source);
      shape.type = copy.type;
      done.numbers += shape.numel();
      done.bytes += shape.bytes();
    }
    report_.parts.push_back(std::move(done));
    if (request_.verifies) {
      if (base.weights() != nullptr) {
        compare_names(*base.weights(), source, copies);
      }
      verify_component(folder, source, copies);
    }
  }

  const ExportRequest& request_;
  SavedRun run_;
  const SavedRole& role_;
  std::unique_ptr<TensorFiles> source_;
  ExportReport report_;
};

}  // namespace

ExportReport export_role(const ExportRequest& request) { return Export(request).run(); }

}  // namespace limbeck
