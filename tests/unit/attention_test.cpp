// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>

#include <ATen/ATen.h>

#include "core/ops/attention.hpp"
#include "core/tensor/handle.hpp"

#include <doctest/doctest.h>

using limbeck::attend;
using limbeck::lend;
using limbeck::pattern_mask;

namespace {

lb_attend full() {
  lb_attend spec = {};
  spec.struct_size = sizeof(spec);
  return spec;
}

lb_attend blocks(uint32_t frames, uint32_t block, uint32_t window = 0, uint32_t sink = 0) {
  lb_attend spec = full();
  spec.pattern = LB_ATTEND_BLOCKS;
  spec.frames = frames;
  spec.height = 1;
  spec.width = 1;
  spec.block = block;
  spec.window = window;
  spec.sink = sink;
  return spec;
}

at::Tensor values(int64_t tokens, double phase) {
  return at::sin(at::arange(2 * tokens * 3 * 4, at::kDouble) * 0.7 + phase).view({2, tokens, 3, 4});
}

// softmax(q k^T / sqrt(d)) v, written out.
at::Tensor reference(const at::Tensor& q,
                     const at::Tensor& k,
                     const at::Tensor& v,
                     const at::Tensor& mask,
                     double scale) {
  auto scores = at::einsum("bthd,bshd->bhts", {q, k}) * scale;
  if (mask.defined()) {
    scores = scores.masked_fill(mask.logical_not(), -INFINITY);
  }
  return at::einsum("bhts,bshd->bthd", {at::softmax(scores, -1), v});
}

// One line per query, '1' where a key is seen.
std::string picture(const at::Tensor& mask) {
  std::string text;
  for (int64_t q = 0; q < mask.size(0); ++q) {
    for (int64_t k = 0; k < mask.size(1); ++k) {
      text += mask[q][k].item<bool>() ? '1' : '.';
    }
    text += '\n';
  }
  return text;
}

}  // namespace

TEST_CASE("attention: dense and cross attention equal the formula") {
  const auto q = values(5, 0.0);
  for (const int64_t keys : {5, 7}) {
    const auto k = values(keys, 0.3);
    const auto v = values(keys, 0.9);
    const auto got = attend(full(), q, k, v);
    CHECK(at::allclose(got, reference(q, k, v, {}, 0.5), 1e-12, 1e-12));
    CHECK(!at::allclose(got, reference(q, k, v, {}, 0.51), 1e-6, 1e-6));
  }
}

TEST_CASE("attention: a scale of its own replaces 1 / sqrt(d)") {
  const auto x = values(5, 0.0);
  auto spec = full();
  spec.scale = 0.25;
  CHECK(at::allclose(attend(spec, x, x, x), reference(x, x, x, {}, 0.25), 1e-12, 1e-12));
}

TEST_CASE("attention: masked keys do not count") {
  const auto q = values(4, 0.0);
  const auto k = values(6, 0.2);
  const auto keys = at::tensor({1, 1, 1, 0, 1, 0, 1, 0, 1, 1, 1, 1}).view({2, 6}).to(at::kBool);
  auto spec = full();
  spec.key_mask = lend(keys);

  const auto got = attend(spec, q, k, k);
  const auto mask = keys.view({2, 1, 1, 6});
  CHECK(at::allclose(got, reference(q, k, k, mask, 0.5), 1e-12, 1e-12));
  CHECK(!at::allclose(got, reference(q, k, k, {}, 0.5), 1e-6, 1e-6));
}

TEST_CASE("attention: blocks see what is before their end") {
  CHECK(picture(pattern_mask(blocks(5, 2), 5, 5)) ==
        "11...\n"
        "11...\n"
        "1111.\n"
        "1111.\n"
        "11111\n");
}

TEST_CASE("attention: the first block may be longer") {
  auto spec = blocks(5, 2);
  spec.first_block = 3;
  CHECK(picture(pattern_mask(spec, 5, 5)) ==
        "111..\n"
        "111..\n"
        "111..\n"
        "11111\n"
        "11111\n");
}

TEST_CASE("attention: a window keeps the last frames, a sink the first ones") {
  CHECK(picture(pattern_mask(blocks(5, 1, 2), 5, 5)) ==
        "1....\n"
        "11...\n"
        ".11..\n"
        "..11.\n"
        "...11\n");
  CHECK(picture(pattern_mask(blocks(5, 1, 3, 1), 5, 5)) ==
        "1....\n"
        "11...\n"
        "111..\n"
        "1.11.\n"
        "1..11\n");
}

TEST_CASE("attention: with more keys than queries, queries are the last frames") {
  CHECK(picture(pattern_mask(blocks(5, 1), 2, 5)) ==
        "1111.\n"
        "11111\n");
}

TEST_CASE("attention: teacher forcing sees clean frames before its own block") {
  auto spec = blocks(3, 1);
  spec.pattern = LB_ATTEND_TEACHER;
  CHECK(picture(pattern_mask(spec, 6, 6)) ==
        "1.....\n"
        "11....\n"
        "111...\n"
        "...1..\n"
        "1...1.\n"
        "11...1\n");
}

TEST_CASE("attention: tokens of a frame share its row and column") {
  auto spec = blocks(2, 1);
  spec.height = 1;
  spec.width = 2;
  CHECK(picture(pattern_mask(spec, 4, 4)) ==
        "11..\n"
        "11..\n"
        "1111\n"
        "1111\n");
}

TEST_CASE("attention: block attention equals dense attention over what a block sees") {
  const auto q = values(4, 0.0);
  const auto k = values(4, 0.4);
  const auto spec = blocks(4, 2);
  const auto got = attend(spec, q, k, k);

  const auto first = attend(full(), q.narrow(1, 0, 2), k.narrow(1, 0, 2), k.narrow(1, 0, 2));
  CHECK(at::allclose(got.narrow(1, 0, 2), first, 1e-12, 1e-12));
  const auto all = attend(full(), q, k, k);
  CHECK(at::allclose(got.narrow(1, 2, 2), all.narrow(1, 2, 2), 1e-12, 1e-12));
  CHECK(!at::allclose(got, all, 1e-6, 1e-6));
}

TEST_CASE("attention: operands and geometry that do not fit are errors") {
  const auto x = values(4, 0.0);
  CHECK_THROWS(attend(full(), x, values(5, 0.0), x));
  CHECK_THROWS(attend(blocks(3, 1), x, x, x));
  CHECK_THROWS(attend(blocks(4, 1, 2, 2), x, x, x));
  CHECK_THROWS(attend(blocks(4, 0), x, x, x));
}
