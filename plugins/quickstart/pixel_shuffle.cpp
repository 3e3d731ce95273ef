// SPDX-License-Identifier: Apache-2.0
#include "quickstart/pixel_shuffle.hpp"

#include <string>

namespace quickstart {
namespace {

constexpr int64_t kSide = 2;
constexpr int64_t kChannels = kSide * kSide;

lb::Tensor per_channel(const std::vector<double>& values, lb_dtype dtype) {
  return lb::tensor(values, {1, kChannels, 1, 1, 1}).to(dtype);
}

// [b, 1, F, h, w] -> [b, 4, F, h/2, w/2]
lb::Tensor fold(const lb::Tensor& pixels) {
  const auto sizes = pixels.sizes();
  if (sizes.size() != 5 || sizes[1] != 1 || sizes[3] % kSide != 0 || sizes[4] % kSide != 0) {
    throw lb::Error(LB_INVALID_ARGUMENT, "'pixels' is " + pixels.shape() +
                                             ", expected [b, 1, frames, h, w] with even h and w");
  }
  const auto h = sizes[3] / kSide;
  const auto w = sizes[4] / kSide;
  return pixels.reshape({sizes[0], sizes[2], h, kSide, w, kSide})
      .permute({0, 3, 5, 1, 2, 4})
      .reshape({sizes[0], kChannels, sizes[2], h, w});
}

// The inverse of fold().
lb::Tensor unfold(const lb::Tensor& latents) {
  const auto sizes = latents.sizes();
  if (sizes.size() != 5 || sizes[1] != kChannels) {
    throw lb::Error(LB_INVALID_ARGUMENT,
                    "'latents' is " + latents.shape() + ", expected [b, 4, frames, h, w]");
  }
  return latents.reshape({sizes[0], kSide, kSide, sizes[2], sizes[3], sizes[4]})
      .permute({0, 3, 4, 1, 5, 2})
      .reshape({sizes[0], 1, sizes[2], sizes[3] * kSide, sizes[4] * kSide});
}

}  // namespace

PixelShuffle::PixelShuffle(const Options& options, const lb::Builder&) : options_(options) {
  if (options.mean.size() != kChannels || options.std.size() != kChannels) {
    throw lb::Error(LB_INVALID_ARGUMENT,
                    "mean and std have " + std::to_string(options.mean.size()) + " and " +
                        std::to_string(options.std.size()) + " values, expected 4 each");
  }
}

void PixelShuffle::describe(lb::Batch& facts) {
  facts.set("pixel_channels", 1);
  facts.set("latent_channels", kChannels);
  facts.set("temporal_ratio", 1);
  facts.set("spatial_ratio", kSide);
  facts.set("latents_mean", lb::tensor(options_.mean, {kChannels}).to(LB_F32));
  facts.set("latents_std", lb::tensor(options_.std, {kChannels}).to(LB_F32));
}

void PixelShuffle::forward(const lb::Units&, const lb::Batch& in, lb::Batch& out) {
  if (const auto pixels = in.find("pixels"); pixels.defined()) {
    const auto raw = fold(pixels);
    out.set("raw_latents", raw);
    out.set("latents", (raw - per_channel(options_.mean, raw.dtype())) /
                           per_channel(options_.std, raw.dtype()));
    return;
  }
  const auto latents = in["latents"];
  out.set("pixels", unfold(latents * per_channel(options_.std, latents.dtype()) +
                           per_channel(options_.mean, latents.dtype())));
}

}  // namespace quickstart
