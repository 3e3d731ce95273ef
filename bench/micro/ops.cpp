// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <map>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "bench.hpp"
#include "core/ops/fused.hpp"
#include "core/ops/linear.hpp"
#include "core/ops/short_attention.hpp"

namespace limbeck::bench {
namespace {

// Sizes of bench/peer/sizes.json, as a block sees them.
struct Size {
  int64_t batch, tokens, heads, head, inner;
  int64_t width() const { return heads * head; }
};
const std::map<std::string, Size> kSizes = {{"quick", {16, 48, 4, 24, 384}},
                                            {"tiny", {2, 144, 4, 16, 256}},
                                            {"small", {2, 256, 4, 64, 1024}},
                                            {"medium", {1, 1024, 8, 64, 2048}}};

using Tensors = std::vector<at::Tensor>;
using Work = std::function<at::Tensor(const Tensors&)>;

at::Tensor leaf(at::IntArrayRef sizes) { return at::randn(sizes).set_requires_grad(true); }

// Forward and backward of `fused` against `formula`.
Row compare(const char* name,
            const std::string& size,
            const Tensors& in,
            const Work& fused,
            const Work& formula) {
  const auto seed = at::randn_like(fused(in).detach());
  const auto run = [&](const Work& work) {
    return torch::autograd::grad({work(in)}, in, {seed}, std::nullopt, false, true);
  };
  const auto got = run(fused);
  const auto expected = run(formula);
  require(at::allclose(fused(in), formula(in), 1e-4, 1e-4), name);
  for (size_t i = 0; i < got.size(); ++i) {
    require(at::allclose(got[i], expected[i], 1e-3, 1e-3 * seed.numel() / got[i].numel()), name);
  }
  return {name, size, best_seconds([&] { run(fused); }), best_seconds([&] { run(formula); }),
          0,    ""};
}

void add_size(std::vector<Row>& rows, const std::string& name) {
  const auto found = kSizes.find(name);
  if (found == kSizes.end()) {
    throw std::invalid_argument("no size '" + name + "': quick, tiny, small, medium");
  }
  const auto& s = found->second;
  constexpr double kEps = 1e-6;
  const auto x = leaf({s.batch, s.tokens, s.width()});
  const auto y = leaf({s.batch, s.tokens, s.width()});
  const auto shift = leaf({s.batch, s.width()});
  const auto scale = leaf({s.batch, s.width()});
  const auto weight = leaf({s.width()});
  const auto angle = at::randn({s.tokens, s.head / 2});
  const auto table = at::stack({angle.cos(), angle.sin()}, -1);
  const auto normed = [&](const at::Tensor& z, const Tensors& t) {
    return at::layer_norm(z, {s.width()}, {}, {}, kEps) * (1 + t[2].unsqueeze(1)) +
           t[1].unsqueeze(1);
  };

  rows.push_back(compare(
      "modulated_norm", name, {x, shift, scale},
      [](const Tensors& t) { return modulated_norm(t[0], t[1], t[2], kEps); },
      [&](const Tensors& t) { return normed(t[0], t); }));
  rows.push_back(compare(
      "residual_norm", name, {x, shift, scale, y, weight},
      [](const Tensors& t) {
        const auto [z, u] = residual_norm(t[0], t[3], t[4], t[1], t[2], true, kEps);
        return z + u;
      },
      [&](const Tensors& t) {
        const auto z = t[0] + t[3] * t[4];
        return z + normed(z, t);
      }));
  rows.push_back(compare(
      "rms_norm_rope", name, {x, weight},
      [&](const Tensors& t) { return rms_norm_rope(t[0], t[1], table, s.heads, kEps); },
      [&](const Tensors& t) {
        const auto split = at::rms_norm(t[0], {s.width()}, t[1], kEps).unflatten(2, {s.heads, -1});
        const auto pairs = at::view_as_complex(split.unflatten(-1, {-1, 2}).contiguous());
        return at::view_as_real(pairs * at::view_as_complex(table).unsqueeze(1)).flatten(3, 4);
      }));
  rows.push_back(compare(
      "gelu_tanh", name, {leaf({s.batch, s.tokens, s.inner})},
      [](const Tensors& t) { return gelu_tanh(t[0]); },
      [](const Tensors& t) { return at::gelu(t[0], "tanh"); }));
  const Tensors qkv = {leaf({s.batch, s.tokens, s.heads, s.head}),
                       leaf({s.batch, s.tokens, s.heads, s.head}),
                       leaf({s.batch, s.tokens, s.heads, s.head})};
  if (is_short_attention(qkv[0], qkv[1], qkv[2])) {
    const double by = 1.0 / std::sqrt(static_cast<double>(s.head));
    rows.push_back(compare(
        "short_attention", name, qkv,
        [by](const Tensors& t) { return short_attention(t[0], t[1], t[2], by); },
        [](const Tensors& t) {
          return at::scaled_dot_product_attention(t[0].transpose(1, 2), t[1].transpose(1, 2),
                                                  t[2].transpose(1, 2))
              .transpose(1, 2);
        }));
  }
  const auto rows_count = static_cast<double>(s.batch * s.tokens);
  auto layer = compare(
      "linear", name, {x, leaf({s.inner, s.width()}), leaf({s.inner})},
      [](const Tensors& t) { return linear(t[0], t[1], t[2], nullptr, nullptr); },
      [](const Tensors& t) { return at::linear(t[0], t[1], t[2]); });
  layer.rate = 6 * rows_count * static_cast<double>(s.width() * s.inner) / layer.seconds / 1e9;
  layer.unit = "GFLOP/s";
  rows.push_back(layer);
}

}  // namespace

std::vector<Row> ops(const std::vector<std::string>& sizes) {
  std::vector<Row> rows;
  for (const auto& name : sizes) {
    add_size(rows, name);
  }
  return rows;
}

}  // namespace limbeck::bench
