// SPDX-License-Identifier: Apache-2.0
// Every spelling in which the parameters of this family are published or trained is one name of
// ours, and no two parameters become one.
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "wan/names.hpp"

#include <doctest/doctest.h>

namespace {

// The network of 30 blocks, as diffusers names it.
std::vector<std::string> published_names() {
  std::vector<std::string> names = {"scale_shift_table"};
  const auto add = [&](const std::string& layer) {
    names.push_back(layer + ".weight");
    names.push_back(layer + ".bias");
  };
  for (const char* layer :
       {"patch_embedding", "condition_embedder.text_embedder.linear_1",
        "condition_embedder.text_embedder.linear_2", "condition_embedder.time_embedder.linear_1",
        "condition_embedder.time_embedder.linear_2", "condition_embedder.time_proj", "proj_out"}) {
    add(layer);
  }
  for (int i = 0; i < 30; ++i) {
    const auto block = "blocks." + std::to_string(i) + ".";
    names.push_back(block + "scale_shift_table");
    add(block + "norm2");
    add(block + "ffn.net.0.proj");
    add(block + "ffn.net.2");
    for (const char* attention : {"attn1.", "attn2."}) {
      for (const char* layer : {"to_q", "to_k", "to_v", "to_out.0"}) {
        add(block + attention + layer);
      }
      names.push_back(block + attention + "norm_q.weight");
      names.push_back(block + attention + "norm_k.weight");
    }
  }
  return names;
}

using Spelling =
    std::vector<std::pair<std::string, std::string>>;  // published -> foreign, by parts

const Spelling kTrained = {
    {"patch_embedding.", "patch_embedding.proj."},
    {"text_embedder.linear_1.", "text_embedder.fc_in."},
    {"text_embedder.linear_2.", "text_embedder.fc_out."},
    {"time_embedder.linear_1.", "time_embedder.mlp.fc_in."},
    {"time_embedder.linear_2.", "time_embedder.mlp.fc_out."},
    {"time_proj.", "time_modulation.linear."},
    {"attn1.to_out.0.", "to_out."},
    {"attn1.", ""},
    {"attn2.to_out.0.", "attn2.to_out."},
    {"ffn.net.0.proj.", "ffn.fc_in."},
    {"ffn.net.2.", "ffn.fc_out."},
    {"norm2.", "self_attn_residual_norm.norm."},
};

const Spelling kOriginal = {
    {"condition_embedder.text_embedder.linear_1.", "text_embedding.0."},
    {"condition_embedder.text_embedder.linear_2.", "text_embedding.2."},
    {"condition_embedder.time_embedder.linear_1.", "time_embedding.0."},
    {"condition_embedder.time_embedder.linear_2.", "time_embedding.2."},
    {"condition_embedder.time_proj.", "time_projection.1."},
    {"proj_out.", "head.head."},
    {"attn1.to_out.0.", "self_attn.o."},
    {"attn2.to_out.0.", "cross_attn.o."},
    {"attn1.to_", "self_attn."},
    {"attn2.to_", "cross_attn."},
    {"attn1.", "self_attn."},
    {"attn2.", "cross_attn."},
    {"ffn.net.0.proj.", "ffn.0."},
    {"ffn.net.2.", "ffn.2."},
    {"norm2.", "norm3."},
    {".scale_shift_table", ".modulation"},
};

std::string spelt(std::string name, const Spelling& spelling) {
  if (name == "scale_shift_table" && &spelling == &kOriginal) {
    return "head.modulation";
  }
  for (const auto& [from, to] : spelling) {
    if (const auto at = name.find(from); at != std::string::npos) {
      return name.replace(at, from.size(), to);
    }
  }
  return name;
}

// How many foreign names are not those of diffusers; each becomes its own name again.
size_t check_bijection(const std::function<std::string(const std::string&)>& foreign_of) {
  std::map<std::string, std::string> seen;
  std::set<std::string> foreign_names;
  size_t changed = 0, wrong = 0;
  for (const auto& name : published_names()) {
    const auto foreign = foreign_of(name);
    const auto back = wan::canonical_name(foreign);
    changed += foreign != name ? 1 : 0;
    foreign_names.insert(foreign);
    const bool is_new = seen.emplace(back, foreign).second;
    if (back != name || !is_new) {
      ++wrong;
      CAPTURE(foreign);
      CHECK(back == name);
      CHECK(is_new);
    }
  }
  CHECK(wrong == 0);
  CHECK(foreign_names.size() == 825);
  CHECK(seen.size() == 825);
  return changed;
}

}  // namespace

TEST_CASE("the names of an export are imported as they are") {
  CHECK(published_names().size() == 825);
  CHECK(check_bijection([](const std::string& name) { return name; }) == 0);
}

TEST_CASE("the names that FastVideo trains with are imported one to one") {
  CHECK(check_bijection([](const std::string& name) { return spelt(name, kTrained); }) ==
        30 * 18 + 12);
}

TEST_CASE("the original names are imported one to one") {
  CHECK(check_bijection([](const std::string& name) { return spelt(name, kOriginal); }) ==
        30 * 27 + 13);
}

TEST_CASE("what wrappers put around names goes, in front and between") {
  for (const char* prefix : {"model.", "diffusion_model.", "transformer.", "module.",
                             "model.diffusion_model.", "_fsdp_wrapped_module."}) {
    check_bijection([&](const std::string& name) { return prefix + spelt(name, kTrained); });
  }
  check_bijection([](const std::string& name) {
    auto wrapped = name;
    const std::string blocks = "blocks.0.";
    if (wrapped.starts_with(blocks)) {
      wrapped.insert(blocks.size(), "_checkpoint_wrapped_module._orig_mod.");
    }
    return wrapped;
  });
}
