// SPDX-License-Identifier: Apache-2.0
// The Wan 2.1 text-to-video transformer. Computes what `WanTransformer3DModel` of diffusers
// computes, with its rounding points for 16-bit dtypes, and has its parameter names.
//
// Units: the root (embeddings and head) and blocks.N.
// Letters: b batch, c channels, T x H x W latent frames and size, f x h x w = S tokens,
// D = heads * head size, L text tokens, g groups of tokens that share a timestep.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <limbeck/network.hpp>

#include "rotary.hpp"

namespace wan {

// The keys of config.json. A null there is the default here.
struct Options {
  std::vector<int64_t> patch_size = {1, 2, 2};
  int64_t num_attention_heads = 40;
  int64_t attention_head_dim = 128;
  int64_t in_channels = 16;
  int64_t out_channels = 16;
  int64_t text_dim = 4096;
  int64_t freq_dim = 256;
  int64_t ffn_dim = 13824;
  int64_t num_layers = 40;
  bool cross_attn_norm = true;
  std::string qk_norm = "rms_norm_across_heads";
  double eps = 1e-6;
  int64_t rope_max_seq_len = 1024;
  int64_t text_len = 0;
  int64_t image_dim = 0;
  int64_t added_kv_proj_dim = 0;
  int64_t pos_embed_seq_len = 0;

  template <class V>
  void visit(V& v) {
    v("patch_size", patch_size, "Frames, rows and columns of latents that make one token.");
    v("num_attention_heads", num_attention_heads, "Attention heads.", "[1, inf)");
    v("attention_head_dim", attention_head_dim, "Channels of a head, an even number.", "[2, inf)");
    v("in_channels", in_channels, "Channels of the latents.", "[1, inf)");
    v("out_channels", out_channels, "Channels that are predicted.", "[1, inf)");
    v("text_dim", text_dim, "Width of the text embeddings.", "[1, inf)");
    v("freq_dim", freq_dim, "Width of the sinusoidal embedding of timesteps.", "[2, inf)");
    v("ffn_dim", ffn_dim, "Inner width of the feed-forward layers.", "[1, inf)");
    v("num_layers", num_layers, "Transformer blocks.", "[1, inf)");
    v("cross_attn_norm", cross_attn_norm, "LayerNorm with weights before cross-attention.");
    v.choice("qk_norm", qk_norm, "Norm of queries and keys, over all heads together.",
             {"rms_norm_across_heads"});
    v("eps", eps, "Added to variances in norms.", "(0, inf)");
    v("rope_max_seq_len", rope_max_seq_len, "Most positions on any axis.", "[1, inf)");
    v("text_len", text_len,
      "Text tokens that prompts are padded to; 0: the longest of the batch.\n\n"
      "Padding is attended to. Published checkpoints were trained with 512.",
      "[0, inf)");
    v("image_dim", image_dim, "Width of image embeddings; not available in this version.",
      "[0, inf)");
    v("added_kv_proj_dim", added_kv_proj_dim,
      "Width of the image keys and values; not available in this version.", "[0, inf)");
    v("pos_embed_seq_len", pos_embed_seq_len,
      "Positions of the image embedding; not available in this version.", "[0, inf)");
  }
};

// What bodies of units need to know; copied into them.
struct Dimensions {
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t width = 0;  // heads * head_dim
  double eps = 0;
};

// Parameters by their indices in a unit.
struct Linear {
  lb::Param weight = LB_NO_PARAM;
  lb::Param bias = LB_NO_PARAM;

  lb::Tensor operator()(const lb::Call& call, const lb::Tensor& x) const {
    return call.linear(weight, bias, x);
  }
};

struct AttentionParams {
  Linear to_q;
  Linear to_k;
  Linear to_v;
  Linear to_out;
  lb::Param norm_q = LB_NO_PARAM;
  lb::Param norm_k = LB_NO_PARAM;
};

struct BlockParams {
  lb::Unit unit = LB_ROOT;
  lb::Param table = LB_NO_PARAM;  // scale_shift_table
  AttentionParams self;
  AttentionParams cross;
  lb::Param norm2_weight = LB_NO_PARAM;  // LB_NO_PARAM: no norm before cross-attention
  lb::Param norm2_bias = LB_NO_PARAM;
  Linear up;
  Linear down;
};

struct RootParams {
  lb::Param table = LB_NO_PARAM;
  Linear patch;
  Linear time_1;
  Linear time_2;
  Linear time_proj;
  Linear text_1;
  Linear text_2;
  Linear out;
};

// Capability limbeck.video-dit/1, and timesteps by group (limbeck.per-frame-time/1): with a
// timestep [b, g] tokens i S/g ... (i + 1) S/g - 1 use entry i.
class Transformer : public lb::Network {
 public:
  using Options = wan::Options;
  static constexpr const char* kind = "limbeck.model/1";
  static constexpr const char* provides[] = {"limbeck.video-dit/1", "limbeck.per-frame-time/1"};

  // Throws lb::Error for options that do not fit each other.
  Transformer(const Options& options, const lb::Builder& builder);

  void describe(lb::Batch& facts) override;
  // noisy [b, c, T, H, W], timestep [b] or [b, g], context [b, L, text_dim] ->
  // velocity [b, c', T, H, W], f32 (f64 for a run in f64).
  void forward(const lb::Units& units, const lb::Batch& in, lb::Batch& out) override;
  // See canonical_name(); empty if that is the key itself.
  std::string rename(const std::string& foreign_key) override;

 private:
  void declare(const lb::Builder& builder);

  Options options_;
  Dimensions dimensions_;
  RootParams root_;
  std::vector<BlockParams> blocks_;
  RotaryTables rotary_;
};

}  // namespace wan
