// SPDX-License-Identifier: Apache-2.0
// What the comparisons with PyTorch share: sizes, and parameters and data made by a hash, as
// bench/peer/fill.py makes them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "core/checkpoint/safetensors.hpp"
#include "core/checkpoint/weights.hpp"
#include "fixtures/hash_fill.hpp"

namespace limbeck::testing {

// A size of bench/peer/sizes.json.
struct PeerSize {
  std::string name;
  int64_t heads;
  int64_t head_dim;
  int64_t layers;
  int64_t ffn_dim;
  int64_t text_len;
  int64_t text_dim;
  std::vector<int64_t> latents;  // channels, frames, height, width
  int64_t batch;

  int64_t width() const { return heads * head_dim; }
};

inline const PeerSize& tiny_size() {
  static const PeerSize size{.name = "tiny",
                             .heads = 4,
                             .head_dim = 16,
                             .layers = 2,
                             .ffn_dim = 256,
                             .text_len = 32,
                             .text_dim = 64,
                             .latents = {16, 4, 12, 12},
                             .batch = 2};
  return size;
}

inline const PeerSize& quick_size() {
  static const PeerSize size{.name = "quick",
                             .heads = 4,
                             .head_dim = 24,
                             .layers = 4,
                             .ffn_dim = 384,
                             .text_len = 4,
                             .text_dim = 32,
                             .latents = {4, 6, 4, 8},
                             .batch = 16};
  return size;
}

inline std::string text_of(const std::vector<int64_t>& values) {
  return nlohmann::json(values).dump();
}

// Shapes of all parameters, by name in ASCII order.
inline std::map<std::string, std::vector<int64_t>> parameters(const PeerSize& of) {
  std::map<std::string, std::vector<int64_t>> all;
  const int64_t width = of.width();
  const int64_t patch = of.latents[0] * 2 * 2;
  const auto linear = [&](const std::string& name, int64_t out, int64_t in) {
    all[name + ".weight"] = {out, in};
    all[name + ".bias"] = {out};
  };
  all["scale_shift_table"] = {1, 2, width};
  all["patch_embedding.weight"] = {width, of.latents[0], 1, 2, 2};
  all["patch_embedding.bias"] = {width};
  linear("condition_embedder.time_embedder.linear_1", width, 256);
  linear("condition_embedder.time_embedder.linear_2", width, width);
  linear("condition_embedder.time_proj", 6 * width, width);
  linear("condition_embedder.text_embedder.linear_1", width, of.text_dim);
  linear("condition_embedder.text_embedder.linear_2", width, width);
  linear("proj_out", patch, width);
  for (int64_t i = 0; i < of.layers; ++i) {
    const std::string block = "blocks." + std::to_string(i) + ".";
    all[block + "scale_shift_table"] = {1, 6, width};
    all[block + "norm2.weight"] = {width};
    all[block + "norm2.bias"] = {width};
    for (const char* attention : {"attn1.", "attn2."}) {
      all[block + attention + "norm_q.weight"] = {width};
      all[block + attention + "norm_k.weight"] = {width};
      for (const char* name : {"to_q", "to_k", "to_v", "to_out.0"}) {
        linear(block + attention + name, width, width);
      }
    }
    linear(block + "ffn.net.0.proj", of.ffn_dim, width);
    linear(block + "ffn.net.2", width, of.ffn_dim);
  }
  return all;
}

// scale u(j, key) + offset for every element.
inline at::Tensor filled(at::IntArrayRef sizes, uint32_t key, double scale, double offset = 0.0) {
  auto values = at::empty(sizes, at::kFloat);
  auto* data = values.mutable_data_ptr<float>();
  for (int64_t j = 0; j < values.numel(); ++j) {
    const double u = hash_value(static_cast<uint32_t>(j), key);
    data[j] = static_cast<float>(scale * u + offset);
  }
  return values;
}

inline at::Tensor parameter(const std::string& name,
                            at::IntArrayRef sizes,
                            uint32_t key,
                            int64_t width) {
  if (name.ends_with("scale_shift_table")) {
    return filled(sizes, key, 1.0 / std::sqrt(static_cast<double>(width)));
  }
  if (name.ends_with(".bias")) {
    return filled(sizes, key, 0.05);
  }
  if (sizes.size() == 1) {
    return filled(sizes, key, 0.1, 1.0);
  }
  const auto numel = static_cast<double>(c10::multiply_integers(sizes));
  return filled(sizes, key, std::sqrt(3.0 * static_cast<double>(sizes[0]) / numel));
}

// `first_key` is that of the role's first parameter.
inline void write_model(const PeerSize& of, const std::string& folder, uint32_t first_key = 0) {
  limbeck::NamedTensors tensors;
  uint32_t key = first_key;
  for (const auto& [name, sizes] : parameters(of)) {
    tensors.emplace_back(name, parameter(name, sizes, key++, of.width()));
  }
  const nlohmann::json config = {{"_class_name", "WanTransformer3DModel"},
                                 {"patch_size", {1, 2, 2}},
                                 {"num_attention_heads", of.heads},
                                 {"attention_head_dim", of.head_dim},
                                 {"in_channels", of.latents[0]},
                                 {"out_channels", of.latents[0]},
                                 {"text_dim", of.text_dim},
                                 {"freq_dim", 256},
                                 {"ffn_dim", of.ffn_dim},
                                 {"num_layers", of.layers},
                                 {"cross_attn_norm", true},
                                 {"eps", 1e-6}};
  limbeck::write_weights(folder, config.dump(), tensors);
}

// The largest relative difference.
inline double worst_relative(const std::vector<double>& values,
                             const std::vector<double>& expected) {
  if (values.size() != expected.size()) {
    return HUGE_VAL;
  }
  double worst = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    worst = std::max(worst, std::abs(values[i] - expected[i]) / std::abs(expected[i]));
  }
  return worst;
}

}  // namespace limbeck::testing
