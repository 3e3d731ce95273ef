// SPDX-License-Identifier: Apache-2.0
#include "transformer.hpp"

#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include <limbeck/fused.hpp>

#include "flops.hpp"
#include "names.hpp"
#include "sinusoid.hpp"

namespace wan {
namespace {

// Arithmetic that diffusers keeps in single precision whatever the compute dtype is.
lb_dtype island_of(lb_dtype compute) { return compute == LB_F64 ? LB_F64 : LB_F32; }

// ---- Bodies of units. Each is a function of its inputs and its unit's parameters.

// Queries from x, keys and values from y. `table` undefined: no rotation.
lb::Tensor attention(const lb::Call& call,
                     const AttentionParams& params,
                     const Dimensions& dimensions,
                     const lb_attend& spec,
                     const lb::Tensor& x,
                     const lb::Tensor& y,
                     const lb::Tensor& table) {
  const auto normed = [&](const lb::Tensor& all, lb::Param weight) {
    return lb::rms_norm_rope(all, call.param(weight), table, dimensions.heads, dimensions.eps);
  };
  const auto q = normed(params.to_q(call, x), params.norm_q);
  const auto k = normed(params.to_k(call, y), params.norm_k);
  const auto v = params.to_v(call, y).unflatten(2, {dimensions.heads, dimensions.head_dim});
  return params.to_out(call, call.attend(spec, {q, k, v}).flatten(2, 3));
}

// A transformer block. in: x [b, S, D], context [b, L, D], time [b, 6, D] or [b, g, 6, D],
// table [S, d / 2, 2]. Returns x.
lb::Tensor block(const lb::Call& call,
                 const BlockParams& params,
                 const Dimensions& dimensions,
                 const lb_attend& self,
                 const lb_attend& cross) {
  // Keys and values both read it. Through one node their gradients meet inside the block, so that
  // those of all blocks are added in the same order whether or not a unit is repeated.
  static const lb::Op alias("aten::alias");
  const auto& before = call.in(0);
  const auto context = alias({call.in(1)});
  const auto& time = call.in(2);
  const auto& table = call.in(3);

  const auto modulation = (call.param(params.table) + time.to(table.dtype())).unbind(-2);
  const auto& [shift_1, scale_1, gate_1, shift_2, scale_2, gate_2] = std::tie(
      modulation[0], modulation[1], modulation[2], modulation[3], modulation[4], modulation[5]);

  auto u = lb::modulated_norm(before, shift_1, scale_1, dimensions.eps);
  u = attention(call, params.self, dimensions, self, u, u, table);
  lb::Tensor x;
  if (params.norm2_weight != LB_NO_PARAM) {
    std::tie(x, u) = lb::residual_norm(before, u, gate_1, call.param(params.norm2_bias),
                                       call.param(params.norm2_weight), false, dimensions.eps);
  } else {
    x = lb::gated_residual(before, u, gate_1);
    u = x;
  }
  u = attention(call, params.cross, dimensions, cross, u, context, {});
  std::tie(x, u) = lb::residual_norm(x, u, {}, shift_2, scale_2, true, dimensions.eps);
  u = params.down(call, lb::gelu_tanh(params.up(call, u)));
  return lb::gated_residual(x, u, gate_2);
}

// What the root computes before the blocks. in: patches [b, S, c pt ph pw], sinusoid [b g, freq],
// text [b, L, text_dim]. Returns x [b, S, D], temb [b g, D], tproj [b g, 6 D], context [b, L, D].
std::vector<lb::Tensor> embed(const lb::Call& call, const RootParams& params) {
  const auto& patches = call.in(0);
  const auto& text = call.in(2);
  const auto compute = text.dtype();
  // A convolution whose stride is its kernel is one product with the flattened kernel.
  const auto kernel = call.param(params.patch.weight).flatten(1, -1);
  auto x = lb::linear(patches, kernel, call.param(params.patch.bias));
  auto temb = params.time_2(call, lb::silu(params.time_1(call, call.in(1)))).to(compute);
  auto tproj = params.time_proj(call, lb::silu(temb));
  auto context = params.text_2(call, lb::gelu_tanh(params.text_1(call, text)));
  return {std::move(x), std::move(temb), std::move(tproj), std::move(context)};
}

// What it computes after them. in: x [b, S, D], temb [b, 1, D] or [b, g, 1, D].
// Returns [b, S, pt ph pw c'].
lb::Tensor head(const lb::Call& call, const RootParams& params, double eps) {
  const auto& table = call.param(params.table);
  const auto modulation = (table + call.in(1).to(table.dtype())).unbind(-2);
  return params.out(call, lb::modulated_norm(call.in(0), modulation[0], modulation[1], eps));
}

// ---- Checks

void require(bool holds, const std::string& message) {
  if (!holds) {
    throw lb::Error(LB_INVALID_ARGUMENT, message);
  }
}

void check_options(const Options& options) {
  require(options.patch_size.size() == 3, "patch_size has " +
                                              std::to_string(options.patch_size.size()) +
                                              " numbers, expected three: frames, rows and columns");
  for (const auto size : options.patch_size) {
    require(size >= 1, "patch_size has " + std::to_string(size) + ", expected at least 1");
  }
  require(options.attention_head_dim % 2 == 0,
          "attention_head_dim is " + std::to_string(options.attention_head_dim) +
              ", expected an even number: channels turn in pairs");
  const std::pair<const char*, int64_t> image_keys[] = {
      {"image_dim", options.image_dim},
      {"added_kv_proj_dim", options.added_kv_proj_dim},
      {"pos_embed_seq_len", options.pos_embed_seq_len}};
  for (const auto& [name, value] : image_keys) {
    if (value != 0) {
      throw lb::Error(LB_UNIMPLEMENTED, "image conditioning is not available in this version (" +
                                            std::string(name) + " is " + std::to_string(value) +
                                            ")");
    }
  }
}

std::string normal(double std) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), std).ptr;
  return "normal(0, " + std::string(digits, end) + ")";
}

constexpr uint32_t kMatrix = LB_PARAM_LINEAR | LB_PARAM_VIA_LINEAR;
constexpr uint32_t kVector = LB_PARAM_NO_DECAY;

// Declares the parameters of a unit one after the other.
struct UnitBuilder {
  const lb::Builder& builder;
  lb::Unit unit;

  Linear linear(const std::string& name,
                int64_t out,
                int64_t in,
                const std::string& init = "xavier_uniform",
                uint32_t flags = 0) const {
    return {builder.param(unit, name + ".weight", {out, in}, init, kMatrix | flags),
            builder.param(unit, name + ".bias", {out}, "zeros", kVector | flags)};
  }
  // `rows` vectors that are added to the time embedding.
  lb::Param table(int64_t rows, int64_t width) const {
    return builder.param(unit, "scale_shift_table", {1, rows, width},
                         normal(1.0 / std::sqrt(static_cast<double>(width))),
                         kVector | LB_PARAM_KEEP_F32);
  }
  AttentionParams attention(const std::string& name, int64_t width) const {
    AttentionParams params;
    params.to_q = linear(name + ".to_q", width, width);
    params.to_k = linear(name + ".to_k", width, width);
    params.to_v = linear(name + ".to_v", width, width);
    params.to_out = linear(name + ".to_out.0", width, width);
    params.norm_q = builder.param(unit, name + ".norm_q.weight", {width}, "ones", kVector);
    params.norm_k = builder.param(unit, name + ".norm_k.weight", {width}, "ones", kVector);
    return params;
  }
};

// x [b, c, T, H, W] -> [b, S, c pt ph pw]: one row per token, channel slowest.
lb::Tensor to_patches(const lb::Tensor& x,
                      const Geometry& geometry,
                      const std::vector<int64_t>& patch) {
  const auto b = x.size(0);
  const auto c = x.size(1);
  const auto [f, h, w] = geometry;
  return x.reshape({b, c, f, patch[0], h, patch[1], w, patch[2]})
      .permute({0, 2, 4, 6, 1, 3, 5, 7})
      .reshape({b, f * h * w, c * patch[0] * patch[1] * patch[2]});
}

// [b, S, pt ph pw c] -> [b, c, T, H, W]: here the channel is fastest.
lb::Tensor from_patches(const lb::Tensor& rows,
                        const Geometry& geometry,
                        const std::vector<int64_t>& patch) {
  const auto b = rows.size(0);
  const auto [f, h, w] = geometry;
  return rows.view({b, f, h, w, patch[0], patch[1], patch[2], -1})
      .permute({0, 7, 1, 4, 2, 5, 3, 6})
      .reshape({b, -1, f * patch[0], h * patch[1], w * patch[2]});
}

Geometry geometry_of(const lb::Tensor& noisy, const Options& options) {
  const auto sizes = noisy.sizes();
  require(sizes.size() == 5 && sizes[1] == options.in_channels,
          "'noisy' has shape " + noisy.shape() + ", expected [b, " +
              std::to_string(options.in_channels) + ", T, H, W]");
  for (size_t axis = 0; axis < 3; ++axis) {
    require(sizes[axis + 2] % options.patch_size[axis] == 0,
            "'noisy' has shape " + noisy.shape() + ", of which size " +
                std::to_string(sizes[axis + 2]) + " is not divisible by the patch size " +
                std::to_string(options.patch_size[axis]));
  }
  return {sizes[2] / options.patch_size[0], sizes[3] / options.patch_size[1],
          sizes[4] / options.patch_size[2]};
}

}  // namespace

Transformer::Transformer(const Options& options, const lb::Builder& builder)
    : options_(options), rotary_(options.attention_head_dim, options.rope_max_seq_len) {
  check_options(options);
  dimensions_ = {options.num_attention_heads, options.attention_head_dim,
                 options.num_attention_heads * options.attention_head_dim, options.eps};
  declare(builder);
}

void Transformer::declare(const lb::Builder& builder) {
  const auto width = dimensions_.width;
  const auto& patch = options_.patch_size;
  const int64_t patch_numel = patch[0] * patch[1] * patch[2];
  const std::string small = normal(0.02);

  const UnitBuilder root{builder, LB_ROOT};
  root_.table = root.table(2, width);
  root_.patch.weight =
      builder.param(LB_ROOT, "patch_embedding.weight",
                    {width, options_.in_channels, patch[0], patch[1], patch[2]}, "xavier_uniform");
  root_.patch.bias = builder.param(LB_ROOT, "patch_embedding.bias", {width}, "zeros", kVector);
  const std::string embedder = "condition_embedder.";
  root_.time_1 = root.linear(embedder + "time_embedder.linear_1", width, options_.freq_dim, small,
                             LB_PARAM_KEEP_F32);
  root_.time_2 =
      root.linear(embedder + "time_embedder.linear_2", width, width, small, LB_PARAM_KEEP_F32);
  root_.time_proj = root.linear(embedder + "time_proj", 6 * width, width);
  root_.text_1 = root.linear(embedder + "text_embedder.linear_1", width, options_.text_dim, small);
  root_.text_2 = root.linear(embedder + "text_embedder.linear_2", width, width, small);

  for (int64_t i = 0; i < options_.num_layers; ++i) {
    BlockParams params;
    params.unit = builder.unit("blocks." + std::to_string(i));
    const UnitBuilder unit{builder, params.unit};
    params.table = unit.table(6, width);
    params.self = unit.attention("attn1", width);
    params.cross = unit.attention("attn2", width);
    if (options_.cross_attn_norm) {
      constexpr uint32_t kFlags = kVector | LB_PARAM_KEEP_F32;
      params.norm2_weight = builder.param(params.unit, "norm2.weight", {width}, "ones", kFlags);
      params.norm2_bias = builder.param(params.unit, "norm2.bias", {width}, "zeros", kFlags);
    }
    params.up = unit.linear("ffn.net.0.proj", options_.ffn_dim, width);
    params.down = unit.linear("ffn.net.2", width, options_.ffn_dim);
    blocks_.push_back(params);
  }
  root_.out = root.linear("proj_out", options_.out_channels * patch_numel, width, "zeros");
}

void Transformer::describe(lb::Batch& facts) {
  facts.set("latent_channels", options_.in_channels)
      .set("patch_frames", options_.patch_size[0])
      .set("patch_height", options_.patch_size[1])
      .set("patch_width", options_.patch_size[2])
      .set("time_scale", 1000)
      .set("context.width", options_.text_dim)
      .set("layers", options_.num_layers)
      .set("heads", options_.num_attention_heads)
      .set("boundary", 0)
      .set("adapter.targets", std::vector<std::string>{"to_q", "to_k", "to_v", "to_out.0"})
      .set("export.folder", "transformer")
      .set("export.class", "WanTransformer3DModel")
      .set("export.omit", std::vector<std::string>{"text_len", "image_dim", "added_kv_proj_dim",
                                                   "pos_embed_seq_len"});
  if (options_.text_len > 0) {
    facts.set("context.tokens", options_.text_len);
  }
}

void Transformer::forward(const lb::Units& units, const lb::Batch& in, lb::Batch& out) {
  const auto compute = units.dtype();
  const auto wide = island_of(compute);
  const auto noisy = in["noisy"];
  const auto geometry = geometry_of(noisy, options_);
  const auto samples = noisy.size(0);
  const auto tokens = geometry.tokens();
  const auto width = dimensions_.width;

  auto timestep = in["timestep"];
  const auto times = timestep.sizes();
  const auto groups = times.size() == 2 ? times[1] : 1;
  require((times.size() == 1 || times.size() == 2) && times[0] == samples && groups > 0 &&
              tokens % groups == 0,
          "'timestep' has shape " + timestep.shape() + ", expected [" + std::to_string(samples) +
              "], or [" + std::to_string(samples) + ", g] with g a divisor of " +
              std::to_string(tokens) + " tokens");
  const auto text = in["context"];
  const auto words = text.sizes();
  require(words.size() == 3 && words[0] == samples && words[1] > 0 && words[2] == options_.text_dim,
          "'context' has shape " + text.shape() + ", expected [" + std::to_string(samples) +
              ", tokens, " + std::to_string(options_.text_dim) + "]");

  const auto patches = to_patches(noisy.to(compute), geometry, options_.patch_size);
  const auto waves = sinusoid(timestep.flatten(), options_.freq_dim, wide);
  const auto embedded =
      units.run(LB_ROOT, {patches, waves, text.to(compute)}, 4,
                [params = root_](const lb::Call& call) { return embed(call, params); });
  const auto per_group = [&](const lb::Tensor& rows, int64_t slots) {
    return groups == 1 ? rows.view({samples, slots, width})
                       : rows.view({samples, groups, slots, width});
  };
  const auto temb = per_group(embedded[1], 1);
  const auto time = per_group(embedded[2], 6);

  auto x = units.split(embedded[0], 1);
  const auto table = units.split(rotary_.get(geometry, wide), 0);
  if (groups > 1 && x.size(1) != tokens) {
    throw lb::Error(LB_UNIMPLEMENTED,
                    "timesteps by group do not go together with sequence parallelism");
  }

  lb_attend self{};
  self.struct_size = sizeof(self);
  self.pattern = LB_ATTEND_FULL;
  self.frames = static_cast<uint32_t>(geometry.frames);
  self.height = static_cast<uint32_t>(geometry.rows);
  self.width = static_cast<uint32_t>(geometry.columns);
  lb_attend cross{};
  cross.struct_size = sizeof(cross);
  cross.pattern = LB_ATTEND_FULL;
  cross.flags = LB_ATTEND_CROSS;
  for (const auto& params : blocks_) {
    x = units.run(params.unit, {x, embedded[3], time, table},
                  [params, dimensions = dimensions_, self, cross](const lb::Call& call) {
                    return block(call, params, dimensions, self, cross);
                  });
  }

  x = units.run(LB_ROOT, {units.join(x, 1, tokens), temb},
                [params = root_, eps = dimensions_.eps](const lb::Call& call) {
                  return head(call, params, eps);
                });
  const WorkSizes work = {
      samples,          geometry.frames,    geometry.rows * geometry.columns, words[1], width,
      options_.ffn_dim, options_.num_layers};
  report_work(work, out);
  out.set("velocity", from_patches(x, geometry, options_.patch_size).to(wide));
}

std::string Transformer::rename(const std::string& foreign_key) {
  auto name = canonical_name(foreign_key);
  return name == foreign_key ? std::string() : name;
}

}  // namespace wan
