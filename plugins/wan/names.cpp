// SPDX-License-Identifier: Apache-2.0
#include "names.hpp"

#include <algorithm>
#include <cstddef>

namespace wan {
namespace {

struct Renaming {
  std::string_view from;
  std::string_view to;
};

// Of the root. An entry that ends in '.' stands for all names below it.
constexpr Renaming kRootNames[] = {
    // the original
    {"time_embedding.0.", "condition_embedder.time_embedder.linear_1."},
    {"time_embedding.2.", "condition_embedder.time_embedder.linear_2."},
    {"time_projection.1.", "condition_embedder.time_proj."},
    {"text_embedding.0.", "condition_embedder.text_embedder.linear_1."},
    {"text_embedding.2.", "condition_embedder.text_embedder.linear_2."},
    {"img_emb.proj.0.", "condition_embedder.image_embedder.norm1."},
    {"img_emb.proj.1.", "condition_embedder.image_embedder.ff.net.0.proj."},
    {"img_emb.proj.3.", "condition_embedder.image_embedder.ff.net.2."},
    {"img_emb.proj.4.", "condition_embedder.image_embedder.norm2."},
    {"img_emb.emb_pos", "condition_embedder.image_embedder.pos_embed"},
    {"head.head.", "proj_out."},
    {"head.modulation", "scale_shift_table"},
    // FastVideo
    {"patch_embedding.proj.", "patch_embedding."},
    {"condition_embedder.time_embedder.mlp.fc_in.", "condition_embedder.time_embedder.linear_1."},
    {"condition_embedder.time_embedder.mlp.fc_out.", "condition_embedder.time_embedder.linear_2."},
    {"condition_embedder.time_modulation.linear.", "condition_embedder.time_proj."},
    {"condition_embedder.text_embedder.fc_in.", "condition_embedder.text_embedder.linear_1."},
    {"condition_embedder.text_embedder.fc_out.", "condition_embedder.text_embedder.linear_2."},
    {"condition_embedder.image_embedder.ff.fc_in.",
     "condition_embedder.image_embedder.ff.net.0.proj."},
    {"condition_embedder.image_embedder.ff.fc_out.", "condition_embedder.image_embedder.ff.net.2."},
};

// Of a block. The original's norm3 has weights and stands before cross-attention; its norm2 has
// none, so a norm2 with weights is diffusers'.
constexpr Renaming kBlockNames[] = {
    // the original
    {"modulation", "scale_shift_table"},
    {"norm3.", "norm2."},
    {"ffn.0.", "ffn.net.0.proj."},
    {"ffn.2.", "ffn.net.2."},
    {"self_attn.q.", "attn1.to_q."},
    {"self_attn.k.", "attn1.to_k."},
    {"self_attn.v.", "attn1.to_v."},
    {"self_attn.o.", "attn1.to_out.0."},
    {"self_attn.norm_q.", "attn1.norm_q."},
    {"self_attn.norm_k.", "attn1.norm_k."},
    {"cross_attn.q.", "attn2.to_q."},
    {"cross_attn.k.", "attn2.to_k."},
    {"cross_attn.v.", "attn2.to_v."},
    {"cross_attn.o.", "attn2.to_out.0."},
    {"cross_attn.norm_q.", "attn2.norm_q."},
    {"cross_attn.norm_k.", "attn2.norm_k."},
    {"cross_attn.k_img.", "attn2.add_k_proj."},
    {"cross_attn.v_img.", "attn2.add_v_proj."},
    {"cross_attn.norm_k_img.", "attn2.norm_added_k."},
    // FastVideo
    {"to_q.", "attn1.to_q."},
    {"to_k.", "attn1.to_k."},
    {"to_v.", "attn1.to_v."},
    {"to_out.", "attn1.to_out.0."},
    {"norm_q.", "attn1.norm_q."},
    {"norm_k.", "attn1.norm_k."},
    {"self_attn_residual_norm.norm.", "norm2."},
    {"ffn.fc_in.", "ffn.net.0.proj."},
    {"ffn.fc_out.", "ffn.net.2."},
};

// What wrappers put before the network's name or between two parts of a parameter's.
constexpr std::string_view kPrefixes[] = {"model.", "diffusion_model.", "transformer.", "module."};
constexpr std::string_view kWrappers[] = {"_fsdp_wrapped_module.", "_orig_mod.",
                                          "_checkpoint_wrapped_module."};

std::string without_wrappers(std::string_view foreign) {
  std::string name(foreign);
  for (const auto wrapper : kWrappers) {
    for (auto at = name.find(wrapper); at != std::string::npos; at = name.find(wrapper)) {
      name.erase(at, wrapper.size());
    }
  }
  const auto has_prefix = [&] {
    return std::find_if(std::begin(kPrefixes), std::end(kPrefixes),
                        [&](std::string_view prefix) { return name.starts_with(prefix); });
  };
  for (auto prefix = has_prefix(); prefix != std::end(kPrefixes); prefix = has_prefix()) {
    name.erase(0, prefix->size());
  }
  return name;
}

template <size_t n>
std::string renamed(std::string_view name, const Renaming (&names)[n]) {
  for (const auto& [from, to] : names) {
    if (from.ends_with('.') ? name.starts_with(from) : name == from) {
      return std::string(to).append(name.substr(from.size()));
    }
  }
  return std::string(name);
}

// One output matrix: "attn2.to_out.weight" of FastVideo, "attn2.to_out.0.weight" of diffusers.
std::string with_output_index(std::string name) {
  constexpr std::string_view kOutput = "attn2.to_out.";
  if (name.starts_with(kOutput) && !name.starts_with("attn2.to_out.0.")) {
    name.insert(kOutput.size(), "0.");
  }
  return name;
}

}  // namespace

std::string canonical_name(std::string_view foreign) {
  const std::string name = without_wrappers(foreign);
  constexpr std::string_view kBlocks = "blocks.";
  const auto dot = name.find('.', kBlocks.size());
  if (!name.starts_with(kBlocks) || dot == std::string::npos) {
    return renamed(name, kRootNames);
  }
  return name.substr(0, dot + 1) +
         with_output_index(renamed(std::string_view(name).substr(dot + 1), kBlockNames));
}

}  // namespace wan
