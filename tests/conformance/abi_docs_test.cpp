// SPDX-License-Identifier: Apache-2.0
// docs/abi.md and docs/errors.md say what the header and the code say.
#include <array>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <limbeck/abi.h>

#include "core/base/error.hpp"
#include "core/base/files.hpp"
#include "core/base/text.hpp"
#include "core/plugin/checks.hpp"
#include "core/plugin/host_table.hpp"
#include "core/plugin/status.hpp"

namespace {

using limbeck::cat;

std::string read(const std::string& path) {
  return limbeck::read_file(LIMBECK_SOURCE_DIR "/" + path);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Kind {
  const char* kind;
  const char* vtable;
  size_t bytes;
};

std::vector<Kind> kinds() {
#define ROW(kind, vtable) \
  { kind, #vtable, sizeof(vtable) }
  return {ROW("limbeck.model/1", lb_model_vtable),
          ROW("limbeck.text-encoder/1", lb_model_vtable),
          ROW("limbeck.vae/1", lb_model_vtable),
          ROW("limbeck.reward/1", lb_model_vtable),
          ROW("limbeck.attention/1", lb_attention_vtable),
          ROW("limbeck.method/1", lb_method_vtable),
          ROW("limbeck.prepare/1", lb_prepare_vtable),
          ROW("limbeck.loss/1", lb_loss_vtable),
          ROW("limbeck.callback/1", lb_callback_vtable),
          ROW("limbeck.dataset/1", lb_dataset_vtable),
          ROW("limbeck.tracker/1", lb_tracker_vtable)};
#undef ROW
}

// "`create` is NULL, but required": what an empty vtable of the kind is refused for.
std::string required_names(const Kind& kind) {
  std::array<const void*, 64> words{};
  lb_component component{};
  component.struct_size = sizeof(component);
  component.kind = kind.kind;
  component.name = "x";
  component.doc = "A component.";
  component.vtable = words.data();
  const auto size = static_cast<uint32_t>(kind.bytes);
  std::memcpy(words.data(), &size, sizeof(size));
  std::vector<std::string> names;
  const std::regex pattern("its function `([a-z_]+)` is NULL, but required");
  for (const auto& fault : limbeck::check_component(component)) {
    std::smatch match;
    if (std::regex_search(fault, match, pattern)) {
      names.push_back(match[1]);
    }
  }
  return limbeck::join(names);
}

}  // namespace

TEST_CASE("docs/abi.md: sizes and required functions of every kind") {
  const auto page = read("docs/abi.md");
  std::vector<std::string> known;
  for (const auto& kind : kinds()) {
    known.emplace_back(kind.kind);
    const auto row = cat("| `", kind.kind, "` | `", kind.vtable, "` | ", kind.bytes, " | ",
                         required_names(kind), " |\n");
    CHECK_MESSAGE(has(page, row), "missing: " << row);
  }
  CHECK(known == limbeck::known_kinds());
}

TEST_CASE("docs/abi.md: services and structs have their size, and every struct is there") {
  const auto page = read("docs/abi.md");
  const auto header = read("sdk/include/limbeck/abi.h");
#define SERVICE(id, table) \
  CHECK_MESSAGE(has(page, cat("| `" id "` | `" #table "` | ", sizeof(table), " |\n")), #table)
  SERVICE("limbeck.config/1", lb_config_api);
  SERVICE("limbeck.tensor/1", lb_tensor_api);
  SERVICE("limbeck.dispatch/1", lb_dispatch_api);
  SERVICE("limbeck.batch/1", lb_batch_api);
  SERVICE("limbeck.random/1", lb_random_api);
  SERVICE("limbeck.group/1", lb_group_api);
#undef SERVICE
  CHECK(limbeck::host_table().get_service(&limbeck::host_table(), "limbeck.config/1") != nullptr);

#define STRUCT(type, growth)                                                           \
  CHECK_MESSAGE(has(page, cat("| `" #type "` | ", sizeof(type), " | " growth " |\n")), \
                #type " has " << sizeof(type))
  STRUCT(lb_host, "struct_size");
  STRUCT(lb_plugin, "struct_size");
  STRUCT(lb_component, "struct_size");
  STRUCT(lb_options, "final");
  STRUCT(lb_option, "stride");
  STRUCT(lb_roles, "final");
  STRUCT(lb_role, "stride");
  STRUCT(lb_fields, "final");
  STRUCT(lb_field, "stride");
  STRUCT(lb_mix, "final");
  STRUCT(lb_mix_source, "stride");
  STRUCT(lb_arg, "final");
  STRUCT(lb_body, "final");
  STRUCT(lb_tensor_info, "struct_size");
  STRUCT(lb_grad_fn, "struct_size");
  STRUCT(lb_param_spec, "struct_size");
  STRUCT(lb_builder, "struct_size");
  STRUCT(lb_attend, "struct_size");
  STRUCT(lb_unit_call, "struct_size");
  STRUCT(lb_ops, "struct_size");
  STRUCT(lb_units, "struct_size");
  STRUCT(lb_models, "struct_size");
  STRUCT(lb_metrics, "struct_size");
  STRUCT(lb_data, "struct_size");
  STRUCT(lb_step, "struct_size");
  STRUCT(lb_plan, "struct_size");
  STRUCT(lb_event, "struct_size");
  STRUCT(lb_source, "struct_size");
  STRUCT(lb_tracked_run, "struct_size");
  STRUCT(lb_key, "struct_size");
  STRUCT(lb_writer, "struct_size");
  STRUCT(lb_reader, "struct_size");
#undef STRUCT

  // Every struct that the header defines has a row somewhere.
  const std::regex pattern("struct (lb_[a-z_]+) \\{");
  size_t n_structs = 0;
  for (std::sregex_iterator it(header.begin(), header.end(), pattern), end; it != end; ++it) {
    const std::string name = (*it)[1];
    ++n_structs;
    CHECK_MESSAGE(has(page, cat("`", name, "` | ")), name << " has no row in docs/abi.md");
  }
  CHECK(n_structs > 40);
}

TEST_CASE("docs: every name of the ABI in the pages is in the header") {
  const auto header = read("sdk/include/limbeck/abi.h");
  const std::regex pattern("\\b(lb_[a-z_]+|LB_[A-Z_]+)\\b(?:\\.([a-z_]+))?");
  const std::set<std::string> of_the_sdk = {"LB_PLUGIN"};
  for (const char* file : {"docs/abi.md", "docs/errors.md", "docs/plugin-guide.md"}) {
    const auto page = read(file);
    for (std::sregex_iterator it(page.begin(), page.end(), pattern), end; it != end; ++it) {
      const std::string name = (*it)[1];
      const std::string member = (*it)[2];
      CHECK_MESSAGE((has(header, name) || of_the_sdk.count(name) != 0), file << ": " << name);
      CHECK_MESSAGE((member.empty() || has(header, member)), file << ": " << name << "." << member);
    }
  }
}

TEST_CASE("docs/errors.md: every kind of error with its exit code, every code with its exit code") {
  using limbeck::Fault;
  const auto page = read("docs/errors.md");
  const std::vector<std::pair<Fault, std::string>> faults = {
      {Fault::kUsage, "kUsage"},      {Fault::kManifest, "kManifest"},
      {Fault::kPlugin, "kPlugin"},    {Fault::kData, "kData"},
      {Fault::kNumeric, "kNumeric"},  {Fault::kDistributed, "kDistributed"},
      {Fault::kMemory, "kMemory"},    {Fault::kCancelled, "kCancelled"},
      {Fault::kInternal, "kInternal"}};
  for (const auto& [fault, name] : faults) {
    const auto row = cat("| ", limbeck::exit_code(fault), " | `", name, "` | ");
    CHECK_MESSAGE(has(page, row), "missing: " << row);
  }
  // None was forgotten above.
  const auto header = read("core/base/error.hpp");
  const std::regex enumerator("\n  (k[A-Z][A-Za-z]+),");
  CHECK(static_cast<size_t>(std::distance(
            std::sregex_iterator(header.begin(), header.end(), enumerator), {})) == faults.size());

  const auto abi = read("sdk/include/limbeck/abi.h");
  const auto codes = abi.substr(abi.find("typedef int32_t lb_code;"));
  const std::string list = codes.substr(0, codes.find("};"));
  const std::regex code("(LB_[A-Z_]+) = ([0-9]+)");
  size_t n_codes = 0;
  for (std::sregex_iterator it(list.begin(), list.end(), code), end; it != end; ++it, ++n_codes) {
    const int value = std::stoi((*it)[2]);
    const std::string exit =
        value == LB_OK ? "–" : cat(limbeck::exit_code(limbeck::fault_of(value)));
    const std::regex row(
        cat("\\| `", (*it)[1].str(), "` \\| ", value, " \\| [^|]+ \\| ", exit, " \\|\n"));
    CHECK_MESSAGE(std::regex_search(page, row), (*it)[1].str()
                                                    << " = " << value << ", exit " << exit);
  }
  CHECK(n_codes == 16);
}

TEST_CASE("docs/errors.md: refusals are told in the words of the code") {
  const auto page = read("docs/errors.md");
  std::string sources;
  for (const auto& entry : std::filesystem::directory_iterator(LIMBECK_SOURCE_DIR "/core/plugin")) {
    if (entry.path().extension() == ".cpp") {
      sources += limbeck::read_file(entry.path());
    }
  }
  std::istringstream rows(page.substr(page.find("## Plugins that are refused")));
  const std::regex quote("`([^`]+)`");
  size_t n_messages = 0;
  for (std::string row; std::getline(rows, row);) {
    if (!row.starts_with("| `")) {
      continue;
    }
    const auto messages = row.substr(0, row.find(" | "));
    for (std::sregex_iterator it(messages.begin(), messages.end(), quote), end; it != end; ++it) {
      // Up to the first name in quotes: that is put in by the code.
      const std::string message = (*it)[1];
      const auto begin = message.substr(0, message.find('\''));
      CHECK_MESSAGE(has(sources, begin), message);
      ++n_messages;
    }
  }
  CHECK(n_messages > 30);
}
