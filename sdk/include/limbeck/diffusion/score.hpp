// SPDX-License-Identifier: Apache-2.0
// Distribution matching (Yin et al. 2023, 2024): a generator moves along the difference of what two
// networks think its samples should be. `real` is x0 as the data's network predicts it from a
// noised sample, `fake` as the network of the generator's own samples does.
//
//   const auto score = lb::diffusion::score_difference(x, fake, real, ScoreNorm::kSample);
//   const auto loss = lb::diffusion::direction_loss(x, score.direction);
//
// Samples are [b, ...], videos [b, c, T, h, w]. Everything is computed in f32, in f64 where an
// operand is: near the end of training it is a small difference of nearly equal numbers.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include <limbeck/diffusion/scalar_or_tensor.hpp>
#include <limbeck/diffusion/schedule.hpp>

namespace lb {
inline namespace v1 LB_HIDDEN {
namespace diffusion {

// Normalisers below it count as it.
inline constexpr double kLeastNorm = 1e-6;

// Over what the normaliser averages: one number for a sample, for a frame of a video (dimension 2),
// or for the whole micro-batch; or no normaliser.
enum class ScoreNorm { kSample, kFrame, kBatch, kNone };

// f64 stays, everything else becomes f32.
inline Tensor full_precision(const Tensor& x) { return x.dtype() == LB_F64 ? x : x.to(LB_F32); }

// mean |x - real| over what `scope` names, at least kLeastNorm, in a shape that broadcasts to x.
// nan where an element it averages is. kNone: ones.
inline Tensor score_norm(const Tensor& x, const Tensor& real, ScoreNorm scope) {
  const Tensor distance = (full_precision(x) - full_precision(real)).abs();
  const std::vector<int64_t> ones(distance.sizes().size(), 1);
  if (scope == ScoreNorm::kNone) {
    return lb::ones(ones, distance.dtype());
  }
  if (scope == ScoreNorm::kBatch) {
    return distance.mean().reshape(ones).clamp(kLeastNorm, HUGE_VAL);
  }
  std::vector<int64_t> dims;
  for (int64_t dim = 1; dim < static_cast<int64_t>(ones.size()); ++dim) {
    if (scope == ScoreNorm::kSample || dim != 2) {
      dims.push_back(dim);
    }
  }
  return distance.mean(dims, true).clamp(kLeastNorm, HUGE_VAL);
}

struct ScoreDifference {
  Tensor direction;  // of the shape of x, without history: what a step downhill subtracts from x
  Tensor norm;       // score_norm()
  Tensor nonfinite;  // scalar: elements of the direction that were nan or infinite, now 0
};

// (fake - real) / score_norm(x, real): from what the generator's network thinks towards what the
// data's network thinks, when it is subtracted. None of the operands gets a gradient.
inline ScoreDifference score_difference(const Tensor& x,
                                        const Tensor& fake,
                                        const Tensor& real,
                                        ScoreNorm scope) {
  const NoGrad no_grad;
  const Tensor norm = score_norm(x, real, scope);
  const Tensor raw = (full_precision(fake) - full_precision(real)) / norm;
  const Tensor is_finite = raw.isfinite();
  return {where(is_finite, raw, zeros_like(raw)), norm,
          static_cast<double>(raw.numel()) - is_finite.to(raw.dtype()).sum()};
}

// A scalar whose gradient with respect to x is direction / numel(x). Its value, half the mean
// square of the direction, tells how far the two networks disagree and is no measure of progress.
inline Tensor direction_loss(const Tensor& x, const Tensor& direction) {
  // x - x is exactly 0, where x - (x - direction) would round the direction to the grain of x.
  const Tensor still = full_precision(x) - full_precision(x).detach();
  return 0.5 * (still + direction.detach()).square().mean();
}

// The level at which scores are compared, from u ~ U[0, 1): shift(floor(1000 u) / 1000), clamped.
// T is double or Tensor.
template <class T>
T score_level(const T& u, double s, double low, double high) {
  return clamp(shift(T(floor(T(u * kTimeScale)) / kTimeScale), s), low, high);
}

}  // namespace diffusion
}  // namespace v1
}  // namespace lb
