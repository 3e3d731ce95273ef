// SPDX-License-Identifier: Apache-2.0
#include "core/tensor/random.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/core/PhiloxRNGEngine.h>

#include "core/base/hash.hpp"
#include "core/base/text.hpp"
#include "core/tensor/guard.hpp"
#include "core/tensor/handle.hpp"
#include "core/tensor/tensor_api.hpp"

namespace limbeck {
namespace {

RandomContext present;
std::map<std::string, at::Tensor> recorded;

// Four numbers come from one counter value, so any range can be produced on its own.
constexpr int64_t kGroup = 4;
constexpr int64_t kGroupsPerTask = 2048;

template <class Fill>
void fill_groups(float* out, int64_t count, uint64_t seed, uint64_t subsequence, Fill fill) {
  const int64_t groups = (count + kGroup - 1) / kGroup;
  at::parallel_for(0, groups, kGroupsPerTask, [&](int64_t begin, int64_t end) {
    at::Philox4_32 engine(seed, subsequence, static_cast<uint64_t>(begin));
    for (int64_t group = begin; group < end; ++group) {
      const uint32_t bits[kGroup] = {engine(), engine(), engine(), engine()};
      float values[kGroup];
      fill(bits, values);
      const int64_t at = group * kGroup;
      std::copy_n(values, std::min(kGroup, count - at), out + at);
    }
  });
}

// [0, 1) with 24 bits, all of which a float holds.
float unit_interval(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24F; }

void box_muller(uint32_t first, uint32_t second, float* out) {
  const float radius = std::sqrt(-2.0F * std::log(1.0F - unit_interval(first)));  // (0, 1]
  const float angle = 2.0F * std::numbers::pi_v<float> * unit_interval(second);
  out[0] = radius * std::cos(angle);
  out[1] = radius * std::sin(angle);
}

// Where row `i` of a draw with `rows` rows stands in the step's global batch.
uint64_t place_of(const lb_key& key, int64_t rows, int64_t i) {
  const int64_t first = static_cast<int64_t>(key.micro) * present.data_size * rows;
  return static_cast<uint64_t>(first + present.data_rank + i * present.data_size);
}

void check_key(const lb_key* key) {
  TORCH_CHECK(key != nullptr && key->purpose != nullptr && *key->purpose != '\0',
              "a random draw needs a key with a purpose");
  TORCH_CHECK(key->stream == LB_CONTROL || key->stream == LB_NOISE, "there is no random stream ",
              key->stream);
}

at::Tensor replayed(const lb_key& key, at::IntArrayRef sizes) {
  const auto name = cat(key.purpose, "/", key.step, "/", key.micro, "/", key.index);
  const auto entry = recorded.find(name);
  if (entry == recorded.end()) {
    throw Error(Fault::kData, cat("the recorded draws have no entry '", name, "'"),
                "record it, or run without run.replay");
  }
  TORCH_CHECK(entry->second.sizes() == sizes, "the recorded draw '", name, "' has shape ",
              entry->second.sizes(), ", the run asks for ", sizes);
  return entry->second;
}

template <class Values>
lb_status* draw(const lb_key* key,
                const int64_t* sizes,
                uint32_t ndim,
                lb_tensor** out,
                Values values) noexcept {
  return guarded([&] {
    check_key(key);
    const at::NoGradGuard no_grad;
    const at::IntArrayRef shape(sizes, ndim);
    if (!recorded.empty()) {
      *out = give(replayed(*key, shape).to(run_device()));
      return;
    }
    const uint64_t seed = fold_key(*key);
    if (key->stream == LB_CONTROL || shape.empty()) {
      *out = give(values(seed, 0, shape).to(run_device()));
      return;
    }
    auto result = at::empty(shape, at::kFloat);
    for (int64_t row = 0; row < shape[0]; ++row) {
      result[row].copy_(values(seed, place_of(*key, shape[0], row), shape.slice(1)));
    }
    *out = give(result.to(run_device()));
  });
}

lb_status* random_normal(const lb_key* key,
                         const int64_t* sizes,
                         uint32_t ndim,
                         lb_tensor** out) noexcept {
  return draw(key, sizes, ndim, out, normal_values);
}

lb_status* random_uniform(const lb_key* key,
                          const int64_t* sizes,
                          uint32_t ndim,
                          lb_tensor** out) noexcept {
  return draw(key, sizes, ndim, out, uniform_values);
}

uint64_t random_seed(const lb_key* key) noexcept { return fold_key(*key); }

// An integer of [0, range): the high half of a 64 x 64 bit product, whose bias is below
// range / 2^64.
uint64_t below(at::Philox4_32& engine, uint64_t range) {
  const uint64_t low = engine();
  const uint64_t bits = (static_cast<uint64_t>(engine()) << 32) | low;
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>((static_cast<Wide>(bits) * range) >> 64);
}

lb_status* random_integers(
    const lb_key* key, int64_t low, int64_t high, int64_t* out, uint32_t count) noexcept {
  return guarded([&] {
    check_key(key);
    TORCH_CHECK(low < high, "integers(): the range [", low, ", ", high, ") is empty");
    if (!recorded.empty()) {
      const auto values = replayed(*key, {count}).to(at::kLong).cpu().contiguous();
      std::copy_n(values.const_data_ptr<int64_t>(), count, out);
      TORCH_CHECK(std::all_of(out, out + count, [&](int64_t i) { return low <= i && i < high; }),
                  "a recorded draw '", key->purpose, "' is outside [", low, ", ", high, ")");
      return;
    }
    const uint64_t seed = fold_key(*key);
    const auto range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
    for (uint32_t i = 0; i < count; ++i) {
      const bool by_place = key->stream == LB_NOISE;
      at::Philox4_32 engine(seed, by_place ? place_of(*key, count, i) : i);
      out[i] = low + static_cast<int64_t>(below(engine, range));
    }
  });
}

lb_status* random_permutation(const lb_key* key, int64_t* out, uint32_t count) noexcept {
  return guarded([&] {
    check_key(key);
    const bool by_place = key->stream == LB_NOISE;
    at::Philox4_32 engine(fold_key(*key), by_place ? place_of(*key, 1, 0) : 0);
    std::iota(out, out + count, int64_t{0});
    for (uint32_t i = count; i > 1; --i) {
      std::swap(out[i - 1], out[below(engine, i)]);
    }
  });
}

}  // namespace

void set_random_context(const RandomContext& to) { present = to; }
void set_recorded_draws(std::map<std::string, at::Tensor> draws) { recorded = std::move(draws); }

uint64_t fold_key(const lb_key& key) {
  uint64_t hash = splitmix64(present.seed);
  const auto fold = [&hash](uint64_t field) { hash = splitmix64(hash ^ splitmix64(field)); };
  fold(static_cast<uint64_t>(key.stream));
  fold(fnv1a64(key.purpose));
  fold(static_cast<uint64_t>(key.step));
  fold(key.index);
  if (key.stream == LB_CONTROL) {
    fold(key.micro);
  }
  return hash;
}

at::Tensor normal_values(uint64_t seed, uint64_t subsequence, at::IntArrayRef sizes) {
  auto out = at::empty(sizes, at::kFloat);
  fill_groups(out.mutable_data_ptr<float>(), out.numel(), seed, subsequence,
              [](const uint32_t* bits, float* values) {
                box_muller(bits[0], bits[1], values);
                box_muller(bits[2], bits[3], values + 2);
              });
  return out;
}

at::Tensor uniform_values(uint64_t seed, uint64_t subsequence, at::IntArrayRef sizes) {
  auto out = at::empty(sizes, at::kFloat);
  fill_groups(out.mutable_data_ptr<float>(), out.numel(), seed, subsequence,
              [](const uint32_t* bits, float* values) {
                for (int64_t i = 0; i < kGroup; ++i) {
                  values[i] = unit_interval(bits[i]);
                }
              });
  return out;
}

const lb_random_api& random_api() {
  static const lb_random_api api = {
      sizeof(lb_random_api), 0, random_seed, random_normal, random_uniform, random_integers,
      random_permutation};
  return api;
}

}  // namespace limbeck
