// SPDX-License-Identifier: Apache-2.0
// Weights of the wan network in every published spelling become the same parameters.
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <unistd.h>

#include <ATen/ATen.h>

#include "core/base/error.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/role/load.hpp"
#include "error_message.hpp"
#include "wan/names.hpp"

#include <doctest/doctest.h>

namespace fs = std::filesystem;

namespace limbeck {
namespace {

using testing::has;
using testing::message_of;

using Spelling = std::function<std::string(const std::string&)>;
using Names = std::vector<std::string>;

// What diffusers calls the parameters of two blocks.
Names canonical_names() {
  Names names = {"scale_shift_table", "patch_embedding.weight", "patch_embedding.bias",
                 "proj_out.weight", "proj_out.bias"};
  const auto linear = [&](const std::string& name) {
    names.push_back(name + ".weight");
    names.push_back(name + ".bias");
  };
  for (const char* name : {"time_embedder.linear_1", "time_embedder.linear_2", "time_proj",
                           "text_embedder.linear_1", "text_embedder.linear_2"}) {
    linear(std::string("condition_embedder.") + name);
  }
  for (const std::string block : {"blocks.0.", "blocks.17."}) {
    names.push_back(block + "scale_shift_table");
    for (const std::string attention : {"attn1.", "attn2."}) {
      for (const char* name : {"to_q", "to_k", "to_v", "to_out.0"}) {
        linear(block + attention + name);
      }
      names.push_back(block + attention + "norm_q.weight");
      names.push_back(block + attention + "norm_k.weight");
    }
    linear(block + "norm2");
    linear(block + "ffn.net.0.proj");
    linear(block + "ffn.net.2");
  }
  return names;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// In the order of the pairs; the first that occurs is replaced.
std::string respelt(const std::string& name,
                    const std::vector<std::pair<std::string, std::string>>& pairs) {
  for (const auto& [from, to] : pairs) {
    if (name.find(from) != std::string::npos) {
      return replaced(name, from, to);
    }
  }
  return name;
}

// blocks.0.attn1.to_q.weight -> blocks.0.self_attn.q.weight
std::string original(const std::string& name) {
  const bool is_block = name.starts_with("blocks.");
  if (is_block && name.ends_with("scale_shift_table")) {
    return replaced(name, "scale_shift_table", "modulation");
  }
  if (name == "scale_shift_table") {
    return "head.modulation";
  }
  auto spelt = respelt(name, {{"condition_embedder.time_embedder.linear_1", "time_embedding.0"},
                              {"condition_embedder.time_embedder.linear_2", "time_embedding.2"},
                              {"condition_embedder.time_proj", "time_projection.1"},
                              {"condition_embedder.text_embedder.linear_1", "text_embedding.0"},
                              {"condition_embedder.text_embedder.linear_2", "text_embedding.2"},
                              {"proj_out", "head.head"},
                              {"ffn.net.0.proj", "ffn.0"},
                              {"ffn.net.2", "ffn.2"},
                              {".norm2.", ".norm3."},
                              {"attn1", "self_attn"},
                              {"attn2", "cross_attn"}});
  return respelt(spelt, {{"to_out.0", "o"}, {"to_q", "q"}, {"to_k", "k"}, {"to_v", "v"}});
}

// blocks.0.attn1.to_q.weight -> blocks.0.to_q.weight
std::string fastvideo(const std::string& name) {
  return respelt(name,
                 {{"patch_embedding.", "patch_embedding.proj."},
                  {"time_embedder.linear_1", "time_embedder.mlp.fc_in"},
                  {"time_embedder.linear_2", "time_embedder.mlp.fc_out"},
                  {"condition_embedder.time_proj", "condition_embedder.time_modulation.linear"},
                  {"text_embedder.linear_1", "text_embedder.fc_in"},
                  {"text_embedder.linear_2", "text_embedder.fc_out"},
                  {"attn1.to_out.0", "to_out"},
                  {"attn2.to_out.0", "attn2.to_out"},
                  {"attn1.", ""},
                  {".norm2.", ".self_attn_residual_norm.norm."},
                  {"ffn.net.0.proj", "ffn.fc_in"},
                  {"ffn.net.2", "ffn.fc_out"}});
}

std::map<std::string, Spelling> spellings() {
  const auto same = [](const std::string& name) { return name; };
  std::map<std::string, Spelling> all = {
      {"diffusers", same}, {"original", original}, {"fastvideo", fastvideo}};
  for (const std::string prefix :
       {"model.", "diffusion_model.", "model.diffusion_model.", "transformer.", "module."}) {
    all["original behind " + prefix] = [prefix](const std::string& n) {
      return prefix + original(n);
    };
    all["diffusers behind " + prefix] = [prefix](const std::string& n) { return prefix + n; };
  }
  all["original under FSDP"] = [](const std::string& name) {
    return "model._fsdp_wrapped_module." +
           replaced(original(name), "blocks.0.", "blocks.0._fsdp_wrapped_module.");
  };
  all["compiled"] = [](const std::string& name) { return "_orig_mod." + name; };
  return all;
}

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("limbeck-names-" + std::to_string(::getpid()))) {
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  fs::path operator/(const std::string& name) const { return path_ / name; }

 private:
  fs::path path_;
};

TEST_CASE("every spelling of every parameter becomes the name that diffusers gives it") {
  for (const auto& spelling : spellings()) {
    const auto& [title, spell] = spelling;
    CAPTURE(spelling.first);
    std::map<std::string, std::string> seen;
    for (const auto& name : canonical_names()) {
      CHECK(wan::canonical_name(spell(name)) == name);
      CHECK(seen.emplace(spell(name), name).second);
    }
  }
  // The spellings differ, so that the test above says something.
  CHECK(original("blocks.0.attn1.to_q.weight") == "blocks.0.self_attn.q.weight");
  CHECK(original("blocks.0.norm2.weight") == "blocks.0.norm3.weight");
  CHECK(fastvideo("blocks.0.attn1.to_out.0.bias") == "blocks.0.to_out.bias");
  CHECK(fastvideo("blocks.0.attn1.norm_q.weight") == "blocks.0.norm_q.weight");
  CHECK(wan::canonical_name("blocks.0.self_attn.norm_q.weight") == "blocks.0.attn1.norm_q.weight");
  CHECK(wan::canonical_name("img_emb.proj.1.bias") ==
        "condition_embedder.image_embedder.ff.net.0.proj.bias");
  CHECK(wan::canonical_name("blocks.3.cross_attn.k_img.weight") ==
        "blocks.3.attn2.add_k_proj.weight");
}

TEST_CASE("names of other things stay recognisable") {
  CHECK(wan::canonical_name("blocks.0.attn1.to_q.lora_A.weight") ==
        "blocks.0.attn1.to_q.lora_A.weight");
  CHECK(wan::canonical_name("encoder.conv1.weight") == "encoder.conv1.weight");
  CHECK(wan::canonical_name("blocks.") == "blocks.");
  CHECK(wan::canonical_name("blocks.0") == "blocks.0");
  CHECK(wan::canonical_name("") == "");
  CHECK(wan::canonical_name("scale_shift_table_2") == "scale_shift_table_2");
}

TEST_CASE("a file in any spelling gives the same weights") {
  const Folder folder;
  const auto names = canonical_names();
  for (const auto& spelling : spellings()) {
    const auto& [title, spell] = spelling;
    CAPTURE(spelling.first);
    NamedTensors file;
    std::vector<WeightTarget> targets;
    for (size_t i = 0; i < names.size(); ++i) {
      file.emplace_back(spell(names[i]), at::full({2, 3}, static_cast<double>(i), at::kBFloat16));
      targets.push_back({names[i], at::full({2, 3}, -1.0, at::kFloat), false});
    }
    write_safetensors(folder / "a.safetensors", file);
    load_weights(folder / "a.safetensors", "", targets, wan::canonical_name);
    for (size_t i = 0; i < names.size(); ++i) {
      CHECK(at::equal(targets[i].value, at::full({2, 3}, static_cast<double>(i), at::kFloat)));
    }
  }
}

TEST_CASE("missing, unexpected, misshapen and mistyped tensors are told together") {
  const Folder folder;
  const auto x = at::ones({2, 3});
  write_safetensors(folder / "a.safetensors", {{"model.head.head.weight", at::ones({3, 2})},
                                               {"model.head.head.bias", x.to(at::kLong)},
                                               {"model.time_embedding.0.bias", x},
                                               {"surplus", x}});
  std::vector<WeightTarget> targets = {
      {"proj_out.weight", at::zeros({2, 3}), false},
      {"proj_out.bias", at::zeros({2, 3}), false},
      {"condition_embedder.time_embedder.linear_1.bias", at::zeros({2, 3}), false},
      {"scale_shift_table", at::zeros({2, 3}), false},
      {"new", at::full({1}, 7), true}};
  const auto text =
      message_of([&] { load_weights(folder / "a.safetensors", "", targets, wan::canonical_name); });
  CHECK(has(text, "1 missing, 1 unexpected, 1 of another shape, 1 of another type"));
  CHECK(has(text, "missing:\n    scale_shift_table"));
  CHECK(has(text, "unexpected:\n    surplus"));
  CHECK(has(text, "proj_out.weight: shape [3, 2], expected [2, 3]"));
  CHECK(has(text, "proj_out.bias: type I64, expected Float"));
  for (size_t i = 0; i < 4; ++i) {
    CHECK(targets[i].value.sum().item<double>() == 0);  // nothing was written
  }
}

TEST_CASE("two tensors that are one parameter are refused") {
  const Folder folder;
  write_safetensors(folder / "a.safetensors",
                    {{"model.head.head.bias", at::ones({1})}, {"proj_out.bias", at::zeros({1})}});
  std::vector<WeightTarget> targets = {{"proj_out.bias", at::zeros({1}), false}};
  CHECK(has(
      message_of([&] { load_weights(folder / "a.safetensors", "", targets, wan::canonical_name); }),
      "'model.head.head.bias' and 'proj_out.bias' are both 'proj_out.bias'"));
}

TEST_CASE("floating types become one another, rounded once; others stay what they are") {
  const Folder folder;
  const auto values = at::tensor(std::vector<double>{1.00390625, -2.5, 3e-3});
  for (const auto from :
       {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kFloat8_e4m3fn, at::kFloat8_e5m2}) {
    write_safetensors(folder / "a.safetensors", {{"x", values.to(from)}});
    for (const auto to : {at::kDouble, at::kFloat, at::kBFloat16}) {
      std::vector<WeightTarget> targets = {{"x", at::zeros({3}, to), false}};
      load_weights(folder / "a.safetensors", "", targets, wan::canonical_name);
      CHECK(at::equal(targets[0].value, values.to(from).to(to)));
    }
    std::vector<WeightTarget> integers = {{"x", at::zeros({3}, at::kLong), false}};
    CHECK(has(message_of([&] {
                load_weights(folder / "a.safetensors", "", integers, wan::canonical_name);
              }),
              "expected Long"));
  }
}

}  // namespace
}  // namespace limbeck
