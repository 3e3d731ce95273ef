// SPDX-License-Identifier: Apache-2.0
#include "core/ops/attention.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/ops/short_attention.hpp"
#include "core/tensor/handle.hpp"

namespace limbeck {
namespace {

// The frames of one sequence, cut into blocks.
struct Blocks {
  const lb_attend& spec;

  int64_t first() const { return spec.first_block != 0 ? spec.first_block : spec.block; }
  int64_t of(int64_t frame) const {
    return frame < first() ? 0 : 1 + (frame - first()) / spec.block;
  }
  int64_t end(int64_t block) const {
    return std::min<int64_t>(spec.frames, first() + block * int64_t{spec.block});
  }
  // Does block `query` see frame `key` of the same half?
  bool sees(int64_t query, int64_t key) const {
    const int64_t stop = end(query);
    if (key >= stop) {
      return false;
    }
    const int64_t recent = int64_t{spec.window} - int64_t{spec.sink};
    return spec.window == 0 || key < spec.sink || key >= stop - recent;
  }
};

// Frame-level masks are expanded to tokens at the end.
at::Tensor expand_frames(const std::vector<uint8_t>& mask,
                         int64_t query_frames,
                         int64_t key_frames,
                         int64_t tokens) {
  return at::tensor(at::ArrayRef<uint8_t>(mask))
      .view({query_frames, key_frames})
      .to(at::kBool)
      .repeat_interleave(tokens, 0)
      .repeat_interleave(tokens, 1);
}

at::Tensor block_mask(const lb_attend& spec, int64_t query_frames, int64_t tokens) {
  const Blocks blocks{spec};
  const int64_t key_frames = spec.frames;
  const int64_t skipped = key_frames - query_frames;  // queries are the last frames
  std::vector<uint8_t> mask(static_cast<size_t>(query_frames * key_frames));
  for (int64_t q = 0; q < query_frames; ++q) {
    for (int64_t k = 0; k < key_frames; ++k) {
      mask[static_cast<size_t>(q * key_frames + k)] = blocks.sees(blocks.of(q + skipped), k);
    }
  }
  return expand_frames(mask, query_frames, key_frames, tokens);
}

at::Tensor clean_and_noisy_mask(const lb_attend& spec, int64_t tokens) {
  const Blocks blocks{spec};
  const int64_t half = spec.frames;
  const int64_t all = 2 * half;
  std::vector<uint8_t> mask(static_cast<size_t>(all * all));
  for (int64_t q = 0; q < all; ++q) {
    const bool is_noisy_query = q >= half;
    const int64_t block = blocks.of(q % half);
    for (int64_t k = 0; k < all; ++k) {
      const bool is_noisy_key = k >= half;
      const int64_t key_block = blocks.of(k % half);
      bool sees = false;
      if (is_noisy_query && is_noisy_key) {
        sees = key_block == block;
      } else if (is_noisy_query) {
        sees = key_block < block && blocks.sees(block, k);
      } else if (!is_noisy_key) {
        sees = blocks.sees(block, k);
      }
      mask[static_cast<size_t>(q * all + k)] = sees;
    }
  }
  return expand_frames(mask, all, all, tokens);
}

}  // namespace

at::Tensor pattern_mask(const lb_attend& spec, int64_t queries, int64_t keys) {
  if (spec.pattern == LB_ATTEND_FULL) {
    return {};
  }
  const int64_t tokens = int64_t{spec.height} * int64_t{spec.width};
  TORCH_CHECK(spec.block > 0 && spec.frames > 0 && tokens > 0,
              "a pattern of blocks needs frames, height, width and block, got ", spec.frames, ", ",
              spec.height, ", ", spec.width, ", ", spec.block);
  TORCH_CHECK(spec.window == 0 || spec.sink < spec.window, "a window of ", spec.window,
              " frames cannot hold ", spec.sink, " sink frames and the present one");
  const int64_t halves = spec.pattern == LB_ATTEND_TEACHER ? 2 : 1;
  TORCH_CHECK(keys == halves * int64_t{spec.frames} * tokens, "attention got ", keys,
              " keys, its geometry says ", halves * int64_t{spec.frames} * tokens);
  if (spec.pattern == LB_ATTEND_TEACHER) {
    TORCH_CHECK(queries == keys, "the pattern [clean | noisy] needs as many queries as keys, got ",
                queries, " and ", keys);
    return clean_and_noisy_mask(spec, tokens);
  }
  TORCH_CHECK(spec.pattern == LB_ATTEND_BLOCKS, "there is no attention pattern ", spec.pattern);
  TORCH_CHECK(queries <= keys && queries % tokens == 0, "attention got ", queries,
              " queries, which are not whole frames of ", tokens, " tokens");
  return block_mask(spec, queries / tokens, tokens);
}

at::Tensor attend(const lb_attend& spec,
                  const at::Tensor& q,
                  const at::Tensor& k,
                  const at::Tensor& v) {
  TORCH_CHECK(q.dim() == 4 && k.dim() == 4 && k.sizes() == v.sizes() && q.size(0) == k.size(0) &&
                  q.size(2) == k.size(2) && q.size(3) == k.size(3),
              "attention takes q [b, t, h, d] and k, v [b, s, h, d], got ", q.sizes(), ", ",
              k.sizes(), ", ", v.sizes());
  std::optional<at::Tensor> mask;
  if (auto pattern = pattern_mask(spec, q.size(1), k.size(1)); pattern.defined()) {
    mask = pattern.to(q.device());
  }
  if (spec.key_mask != nullptr) {
    const auto& keys = tensor_of(spec.key_mask);
    TORCH_CHECK(keys.dim() == 2 && keys.size(0) == k.size(0) && keys.size(1) == k.size(1),
                "key_mask must be [b, s] = [", k.size(0), ", ", k.size(1), "], got ", keys.sizes());
    const auto wide = keys.to(at::kBool).view({keys.size(0), 1, 1, keys.size(1)});
    mask = mask.has_value() ? mask->logical_and(wide) : wide;
  }
  if (!mask.has_value() && is_short_attention(q, k, v)) {
    const double scale =
        spec.scale != 0 ? spec.scale : 1.0 / std::sqrt(static_cast<double>(q.size(3)));
    return short_attention(q, k, v, scale);
  }
  const auto scale = spec.scale != 0 ? std::optional(spec.scale) : std::nullopt;
  return at::scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),
                                          mask, 0.0, false, scale)
      .transpose(1, 2);
}

}  // namespace limbeck
