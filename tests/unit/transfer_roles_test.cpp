// SPDX-License-Identifier: Apache-2.0
// From a checkpoint to a Diffusers folder, and from another program's state to weights.
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "dcp_folder.hpp"
#include "error_message.hpp"
#include "fixtures/saved_state.hpp"

#include <doctest/doctest.h>

#include "core/checkpoint/record.hpp"
#include "core/transfer/export_role.hpp"
#include "core/transfer/import_state.hpp"
#include "core/transfer/saved_run.hpp"
#include "core/weights/weight_files.hpp"

namespace limbeck {
namespace {

using nlohmann::json;
using testing::DcpFolder;
using testing::has;
using testing::message_of;
using testing::ramp;
using testing::StateTensors;

namespace fs = std::filesystem;

const StateTensors kWeights = {{"blocks.0.w", ramp({2, 3}, 1)}, {"head", ramp({4}, 8)}};

// A pipeline whose component "net" has these weights, in bf16 but for "head".
void write_base(const fs::path& base, const StateTensors& weights) {
  write_file(base / "model_index.json", R"({"_class_name": "Pipeline"})");
  write_file(base / "vae" / "config.json", "{}");
  write_file(base / "net" / "config.json",
             R"({"_class_name": "Old", "_diffusers_version": "0.30", "width": 9, "extra": null})");
  testing::write_state(base / ".state", weights);
  const auto source = open_tensor_files(base / ".state");
  std::vector<TensorCopy> copies;
  for (const auto& [name, tensor] : weights) {
    copies.push_back({name, name, find_weight_type(name == "head" ? "F32" : "BF16")});
  }
  write_component(base / "net", *source, copies, 10);
}

ExportRequest request_of(const DcpFolder& folder) {
  ExportRequest request;
  request.checkpoint = folder / "checkpoint-12";
  request.role = "pupil";
  request.output = folder / "out";
  request.verifies = true;
  return request;
}

float first_number(const TensorFiles& files, const std::string& name) {
  float value = 0;
  files.read(name, 0, sizeof(value), reinterpret_cast<std::byte*>(&value));
  return value;
}

size_t entries_in(const fs::path& folder) {
  return static_cast<size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

}  // namespace

TEST_CASE("without a base the component is written alone, as saved, under its plain names") {
  const DcpFolder folder;
  testing::write_checkpoint(folder / "checkpoint-12", kWeights);
  const auto report = export_role(request_of(folder));
  CHECK(report.step == 12);
  CHECK(report.parts.at(0).tensors == 2);
  const auto files = open_tensor_files(folder / "out");
  CHECK(files->tensors().size() == 2);
  CHECK(files->shape("blocks.0.w").type == find_weight_type("F32"));
  CHECK(first_number(*files, "head") == 8.0F);
  const auto config = json::parse(read_file(folder / "out" / "net" / "config.json"));
  CHECK(config == json::parse(R"({"_class_name": "Net", "width": 3, "depth": 2})"));
  const auto record = json::parse(read_file(folder / "out" / "limbeck_export.json"));
  CHECK(record["step"] == 12);
  CHECK(record["role"] == "pupil");
  CHECK(record["weights"] == "live");
  CHECK(record["plugins"][0]["id"] == "org.example.nets");
  CHECK(record["files"][0]["path"] == "net/diffusion_pytorch_model.safetensors");
  CHECK(record["files"][0]["xxh3"] == digest_text(report.files.at(0).xxh3));
  CHECK(entries_in(folder.path()) == 2);
}

TEST_CASE("the averaged weights are other ones; state that is no weight has no average") {
  const DcpFolder folder;
  testing::write_checkpoint(folder / "checkpoint-12", kWeights, "", {{"seen", ramp({2}, 3)}});
  auto request = request_of(folder);
  request.is_averaged = true;
  export_role(request);
  const auto files = open_tensor_files(folder / "out");
  CHECK(first_number(*files, "head") == 8.5F);
  CHECK(first_number(*files, "seen") == 3.0F);
  CHECK(files->tensors().size() == 3);
}

TEST_CASE("the pipeline that a role was loaded from is its base: all of it, types and names too") {
  const DcpFolder folder;
  const auto base = folder / "base";
  auto old = kWeights;
  old["head"] = ramp({4}, -1);
  write_base(base, old);
  testing::write_checkpoint(folder / "checkpoint-12", kWeights, base.string());
  const auto old_head =
      read_file(base / "net" / "diffusion_pytorch_model-00002-of-00002.safetensors");
  const auto report = export_role(request_of(folder));
  CHECK(report.base == base);
  CHECK(fs::exists(folder / "out" / "model_index.json"));
  CHECK(fs::exists(folder / "out" / "vae" / "config.json"));
  // One file now; the base's shards and index are not carried over.
  CHECK(entries_in(folder / "out" / "net") == 2);
  const auto files = open_tensor_files(folder / "out" / "net");
  CHECK(files->shape("blocks.0.w").type == find_weight_type("BF16"));
  CHECK(files->shape("head").type == find_weight_type("F32"));
  CHECK(first_number(*files, "head") == 8.0F);
  const auto config = json::parse(read_file(folder / "out" / "net" / "config.json"));
  CHECK(config["_class_name"] == "Net");
  CHECK(config["_diffusers_version"] == "0.30");
  CHECK(config["width"] == 3);
  CHECK(config["extra"].is_null());
  // Nothing was written through a link.
  CHECK(read_file(base / "net" / "diffusion_pytorch_model-00002-of-00002.safetensors") == old_head);
  CHECK(json::parse(read_file(base / "net" / "config.json"))["width"] == 9);
}

TEST_CASE("a wanted type counts more than the base's") {
  const DcpFolder folder;
  write_base(folder / "base", kWeights);
  testing::write_checkpoint(folder / "checkpoint-12", kWeights);
  auto request = request_of(folder);
  request.base = folder / "base" / "net";
  request.type = find_weight_type("F16");
  export_role(request);
  // The base is a component: only that is written.
  CHECK_FALSE(fs::exists(folder / "out" / "model_index.json"));
  CHECK(open_tensor_files(folder / "out")->shape("head").type == find_weight_type("F16"));
}

TEST_CASE("verifying compares names and shapes with the base") {
  const DcpFolder folder;
  write_base(folder / "base", {{"blocks.0.w", ramp({3, 2}, 1)}, {"tail", ramp({4}, 8)}});
  testing::write_checkpoint(folder / "checkpoint-12", kWeights, (folder / "base").string());
  auto request = request_of(folder);
  const auto text = message_of([&] { export_role(request); });
  CHECK(has(text, "1 missing, 1 unexpected, 1 of another shape"));
  CHECK(has(text, "tail"));
  CHECK(has(text, "blocks.0.w: [2, 3], the base has [3, 2]"));
  CHECK_FALSE(fs::exists(folder / "out"));
  request.verifies = false;
  export_role(request);
}

TEST_CASE("roles, weights and bases that are not there are named") {
  const DcpFolder folder;
  testing::write_checkpoint(folder / "checkpoint-12", kWeights, (folder / "gone").string());
  auto request = request_of(folder);
  request.role = "pupils";
  CHECK(has(message_of([&] { export_role(request); }, Fault::kUsage), "did you mean 'pupil'?"));
  request.role = "pupil";
  CHECK(export_role(request).absent_base == folder / "gone");
  CHECK(has(message_of([&] { export_role(request); }), "exists already"));
  request.overwrites = true;
  export_role(request);
  request.base = folder / "nowhere";
  CHECK(has(message_of([&] { export_role(request); }), "nowhere: --base is no folder"));
}

TEST_CASE("of an output folder the newest complete checkpoint is taken") {
  const DcpFolder folder;
  testing::write_checkpoint(folder / "checkpoint-12", kWeights);
  testing::write_checkpoint(folder / "checkpoint-9", kWeights);
  testing::write_checkpoint(folder / "checkpoint-100", kWeights);
  fs::remove(folder / "checkpoint-100" / "COMPLETE");
  CHECK(read_saved_run(folder.path()).folder == folder / "checkpoint-12");
  CHECK(has(message_of([&] { read_saved_run(folder / "checkpoint-100"); }), "COMPLETE"));
  CHECK(has(message_of([&] { read_saved_run(folder / "checkpoint-12" / "dcp"); }),
            "is no checkpoint"));
  write_file(folder / "checkpoint-12" / "COMPLETE", "");
  CHECK(read_saved_run(folder.path()).folder == folder / "checkpoint-9");
}

TEST_CASE("weights that are not all in the checkpoint are not exported") {
  const DcpFolder folder;
  testing::write_checkpoint(folder / "checkpoint-12", kWeights);
  auto text = read_file(folder / "checkpoint-12" / "limbeck.json");
  const std::string count = "\"parameters\": 10";
  const auto at = text.find(count);
  REQUIRE(at != std::string::npos);
  text.replace(at, count.size(), "\"parameters\": 11");
  write_file(folder / "checkpoint-12" / "limbeck.json", text);
  CHECK(has(message_of([&] { export_role(request_of(folder)); }),
            "limbeck.json is not the one that COMPLETE belongs to"));
  write_file(folder / "checkpoint-12" / "COMPLETE", completion_of(text));
  CHECK(has(message_of([&] { export_role(request_of(folder)); }),
            "has 10 of the 11 numbers of role 'pupil'"));
}

TEST_CASE("an export of a damaged checkpoint leaves nothing behind") {
  const DcpFolder folder;
  testing::write_checkpoint(folder / "checkpoint-12", kWeights);
  auto bytes = read_file(folder / "checkpoint-12" / "dcp" / "__0_0.distcp");
  const float wanted = 8.125F;  // "head", live
  char pattern[sizeof(wanted)];
  std::memcpy(pattern, &wanted, sizeof(wanted));
  for (auto at = bytes.find(std::string(pattern, 4)); at != std::string::npos;
       at = bytes.find(std::string(pattern, 4), at + 1)) {
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
  }
  write_file(folder / "checkpoint-12" / "dcp" / "__0_0.distcp", bytes);
  CHECK(has(message_of([&] { export_role(request_of(folder)); }), "CRC"));
  CHECK(entries_in(folder.path()) == 1);
}

TEST_CASE("an export that the disk has no room for leaves nothing behind, and what was there") {
  const DcpFolder folder;
  testing::write_checkpoint(folder / "checkpoint-12", {{"w", ramp({1000}, 0)}});
  export_role(request_of(folder));
  const auto before = read_file(folder / "out" / "net" / "diffusion_pytorch_model.safetensors");
  auto request = request_of(folder);
  request.is_averaged = true;
  request.overwrites = true;
  struct rlimit old = {};
  ::getrlimit(RLIMIT_FSIZE, &old);
  auto limited = old;
  limited.rlim_cur = 2000;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &limited);
  std::string text;
  try {
    export_role(request);
  } catch (const Error& error) {
    text = error.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  CHECK(has(text, "diffusion_pytorch_model.safetensors: cannot write: "));
  CHECK(entries_in(folder.path()) == 2);
  CHECK(read_file(folder / "out" / "net" / "diffusion_pytorch_model.safetensors") == before);
}

TEST_CASE("a state of another program becomes weights of each part, and says what was left aside") {
  const DcpFolder folder;
  testing::write_state(folder / "checkpoint-5" / "dcp",
                       {{"roles.pupil.net.blocks.0.to_q", ramp({4, 2}, 1)},
                        {"roles.pupil.net_2.x", ramp({3}, 2)},
                        {"roles.other.net.x", ramp({3}, 2)},
                        {"optimizers.pupil.state.net.x.exp_avg", ramp({3}, 2)}},
                       {{"optimizers.pupil.param_groups.net.x.lr", DcpValue{0.001}},
                        {"schedulers.pupil.last_epoch", DcpValue{int64_t{5}}}});
  ImportRequest request;
  request.state = folder / "checkpoint-5";
  request.role = "pupil";
  request.output = folder / "out";
  request.verifies = true;
  const auto report = import_state(request);
  CHECK(report.tensors == 2);
  CHECK_FALSE(report.has_config);
  CHECK(report.aside.at("optimizers.pupil").tensors == 1);
  CHECK(report.aside.at("optimizers.pupil").values == 1);
  CHECK(report.aside.at("roles.other").tensors == 1);
  CHECK(report.aside.at("schedulers.pupil").values == 1);
  CHECK(report.aside.count("roles.pupil") == 0);
  CHECK(first_number(*open_weights(folder / "out" / "net"), "blocks.0.to_q") == 1.0F);
  CHECK(first_number(*open_weights(folder / "out" / "net_2"), "x") == 2.0F);

  request.prefix = "roles.other.net.";
  request.output = folder / "other";
  request.rename = [](const std::string& name) { return "renamed." + name; };
  CHECK(import_state(request).renamed == 1);
  CHECK(first_number(*open_weights(folder / "other"), "renamed.x") == 2.0F);
}

TEST_CASE("an import of names that are not there, or become one, is refused") {
  const DcpFolder folder;
  testing::write_state(folder / "dcp",
                       {{"roles.pupil.net.a", ramp({1}, 1)}, {"roles.pupil.net.b", ramp({1}, 1)}});
  ImportRequest request;
  request.state = folder / "dcp";
  request.role = "teacher";
  request.output = folder / "out";
  const auto text = message_of([&] { import_state(request); });
  CHECK(has(text, "no tensor's name begins with 'roles.teacher.'"));
  CHECK(has(text, "roles.pupil."));
  request.role = "pupil";
  request.rename = [](const std::string&) { return "same"; };
  CHECK(has(message_of([&] { import_state(request); }), "are both 'same'"));
  CHECK_FALSE(fs::exists(folder / "out"));
  request.state = folder.path() / "none";
  CHECK(has(message_of([&] { import_state(request); }), "is no distributed checkpoint"));
}

TEST_CASE("names and shapes of an import are compared with the base, whose config.json it takes") {
  const DcpFolder folder;
  write_base(folder / "base", kWeights);
  testing::write_state(folder / "dcp", {{"roles.pupil.net.blocks.0.w", ramp({2, 3}, 5)},
                                        {"roles.pupil.net.head", ramp({4}, 6)}});
  ImportRequest request;
  request.state = folder / "dcp";
  request.role = "pupil";
  request.base = folder / "base";
  request.output = folder / "out";
  request.verifies = true;
  CHECK(import_state(request).has_config);
  CHECK(read_file(folder / "out" / "net" / "config.json") ==
        read_file(folder / "base" / "net" / "config.json"));
  request.rename = [](const std::string& name) { return name == "head" ? "tail" : name; };
  request.output = folder / "other";
  CHECK(has(message_of([&] { import_state(request); }), "1 missing, 1 unexpected"));
}

}  // namespace limbeck
