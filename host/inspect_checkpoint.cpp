// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <iostream>
#include <map>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/files.hpp"
#include "core/base/text.hpp"
#include "core/dcp/reader.hpp"
#include "core/dcp/writer.hpp"
#include "core/transfer/component.hpp"
#include "core/transfer/export_role.hpp"
#include "core/transfer/saved_run.hpp"
#include "core/weights/strict_json.hpp"
#include "core/weights/weight_files.hpp"
#include "host/inspect.hpp"

namespace limbeck::host {
namespace {

namespace fs = std::filesystem;

void print_files(const std::vector<CheckpointFile>& files) {
  for (const auto& file : files) {
    std::cout << "  file: " << file.path << ", " << bytes_text(file.digest.bytes) << ", xxh3 "
              << digest_text(file.digest.xxh3) << '\n';
  }
}

// Every fault at once.
void verify_files(const fs::path& folder, const std::vector<CheckpointFile>& files) {
  std::vector<std::string> faults;
  for (const auto& file : files) {
    try {
      const auto found = digest_of_file(folder / file.path);
      if (found.bytes != file.digest.bytes) {
        faults.push_back(
            cat(file.path, ": has ", found.bytes, " bytes, ", file.digest.bytes, " were written"));
      } else if (found.xxh3 != file.digest.xxh3) {
        faults.push_back(cat(file.path, ": has the digest ", digest_text(found.xxh3), ", ",
                             digest_text(file.digest.xxh3), " was written"));
      }
    } catch (const Error& error) {
      faults.push_back(error.message());
    }
  }
  if (!faults.empty()) {
    throw Error(Fault::kData,
                cat(folder.string(), ": ", faults.size(), " of ", files.size(),
                    " files are not as they were written:\n    ", first_ten(faults, "\n    ")),
                "the disk or a copy is faulty, or somebody changed them; take another copy");
  }
  std::cout << "  verified: " << files.size() << " files have the digests that were recorded\n";
}

// Sums of all items, also of such that no tensor of ours is.
void verify_items(const TensorFiles& tensors, const DcpReader& reader) {
  std::vector<std::string> faults;
  const auto attempt = [&](const auto& read) {
    try {
      read();
    } catch (const Error& error) {
      faults.push_back(error.message());
    }
  };
  for (const auto& [name, shape] : tensors.tensors()) {
    attempt([&, &key = name] {
      read_blocks(tensors, key, [](const std::byte*, uint64_t, uint64_t) {});
    });
  }
  for (const auto& [name, item] : reader.index().values) {
    attempt([&, &key = name] { reader.value(key); });
  }
  if (!faults.empty()) {
    throw Error(Fault::kData,
                cat(tensors.path().string(), ": ", faults.size(), " items cannot be read:\n    ",
                    first_ten(faults, "\n    ")),
                "the disk or a copy is faulty; take another copy");
  }
  std::cout << "  verified: " << tensors.tensors().size() << " tensors and "
            << reader.index().values.size() << " values have the sums in their files\n";
}

// "roles.a.transformer.x" -> "roles.a", "optimizers.a.state.transformer.x" -> "optimizers.a".
std::string group_of(const std::string& name) {
  const auto first = name.find('.');
  return name.substr(0, first == std::string::npos ? first : name.find('.', first + 1));
}

void print_groups(const TensorFiles& tensors) {
  struct Group {
    uint64_t tensors = 0, numbers = 0, bytes = 0;
    std::set<std::string> types;
  };
  std::map<std::string, Group> groups;
  for (const auto& [name, shape] : tensors.tensors()) {
    auto& group = groups[group_of(name)];
    ++group.tensors;
    group.numbers += shape.numel();
    group.bytes += shape.bytes();
    group.types.insert(shape.type->name);
  }
  for (const auto& [name, group] : groups) {
    std::cout << "  " << name << ": " << group.tensors << " tensors, " << count_text(group.numbers)
              << " numbers, " << bytes_text(group.bytes) << ", "
              << join({group.types.begin(), group.types.end()}) << '\n';
  }
}

void print_state(const fs::path& folder, const InspectOptions& options) {
  const auto tensors = open_dcp_tensors(folder);
  const DcpReader reader(folder);
  print_totals(*tensors);
  print_groups(*tensors);
  if (options.verifies) {
    verify_items(*tensors, reader);
  }
  if (!tensors->tensors().empty()) {
    print_tensors(*tensors, options);
  }
  const auto& values = reader.index().values;
  std::cout << '\n';
  if (values.size() > 100 && options.filter.empty()) {
    std::cout << "  " << values.size() << " values, one by one with --filter\n";
    return;
  }
  for (const auto& [name, item] : values) {
    if (name.find(options.filter) != std::string::npos) {
      std::cout << "  " << name << " = " << value_text(reader.value(name)) << '\n';
    }
  }
}

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) {
    result += c == '\'' || c == '\\' ? std::string{'\\', c} : c == '\n' ? "\\n" : std::string{c};
  }
  return result + "'";
}

std::string list_text(const DcpValue::List& list) {
  std::vector<std::string> items;
  for (const auto& item : list) {
    items.push_back(value_text(item));
  }
  return "[" + join(items) + "]";
}

std::string dict_text(const DcpValue::Dict& dict) {
  std::vector<std::string> items;
  for (const auto& [key, value] : dict) {
    items.push_back(value_text(key) + ": " + value_text(value));
  }
  return "{" + join(items) + "}";
}

}  // namespace

std::string value_text(const DcpValue& value) {
  struct Writer {
    std::string operator()(DcpValue::None) const { return "None"; }
    std::string operator()(bool value) const { return value ? "True" : "False"; }
    std::string operator()(int64_t value) const { return std::to_string(value); }
    std::string operator()(double value) const { return shortest(value); }
    std::string operator()(const std::string& value) const { return quoted(value); }
    std::string operator()(const DcpValue::Bytes& value) const {
      return cat("<", value.data.size(), " bytes>");
    }
    std::string operator()(const DcpValue::List& value) const { return list_text(value); }
    std::string operator()(const DcpValue::Dict& value) const { return dict_text(value); }
    std::string operator()(const DcpValue::Opaque& value) const { return "<" + value.what + ">"; }
  };
  return std::visit(Writer{}, value.value);
}

void inspect_checkpoint(const fs::path& folder, const InspectOptions& options) {
  const auto run = read_saved_run(folder);
  std::cout << folder.string() << ": a checkpoint\n  step: " << run.record.step
            << "\n  saved: " << run.record.saved << " by limbeck " << run.version << '\n';
  for (const auto& plugin : run.plugins) {
    std::cout << "  plugin " << plugin.name << ": " << plugin.id << ' ' << plugin.version
              << (plugin.sha256.empty() ? "" : ", sha256 ") << plugin.sha256 << '\n';
  }
  for (const auto& [name, role] : run.roles) {
    std::vector<std::string> parts;
    for (const auto& [part, saved] : role.parts) {
      parts.push_back(cat(part, " (", saved.class_name, ")"));
    }
    std::cout << "  role " << name << ": " << role.type << ", " << join(parts)
              << (role.is_averaged ? ", averaged" : "") << (role.init_from.empty() ? "" : ", from ")
              << role.init_from << '\n';
  }
  print_files(run.record.files);
  if (options.verifies) {
    verify_files(run.folder, run.record.files);
  }
  print_state(run.folder / "dcp", options);
}

void inspect_dcp(const fs::path& folder, const InspectOptions& options) {
  std::cout << folder.string() << ": a distributed checkpoint\n";
  print_state(folder, options);
}

void inspect_export_record(const fs::path& folder, const InspectOptions& options) {
  const auto path = folder / kExportRecord;
  const auto record = parse_strict(read_file(path), path, "the record");
  std::vector<CheckpointFile> files;
  try {
    for (const auto& file : record.at("files")) {
      const auto digits = file.at("xxh3").get<std::string>();
      uint64_t xxh3 = 0;
      std::from_chars(digits.data(), digits.data() + digits.size(), xxh3, 16);
      files.push_back(
          {file.at("path").get<std::string>(), {file.at("bytes").get<uint64_t>(), xxh3}});
    }
    std::cout << folder.string() << ": an export\n  role: " << record.at("role").get<std::string>()
              << ", weights: " << record.at("weights").get<std::string>()
              << "\n  step: " << record.at("step").get<int64_t>()
              << "\n  checkpoint: " << record.at("checkpoint").get<std::string>() << '\n';
  } catch (const nlohmann::json::exception& error) {
    throw Error(Fault::kData, cat(path.string(), ": is no record of an export: ", error.what()));
  }
  print_files(files);
  if (options.verifies) {
    verify_files(folder, files);
  }
}

}  // namespace limbeck::host
