// SPDX-License-Identifier: Apache-2.0
// The VAE "pixel_shuffle".
#pragma once

#include <vector>

#include <limbeck/network.hpp>

namespace quickstart {

// A stand-in for a VAE: the four pixels of a 2x2 block become four channels, so nothing is lost
// and nothing is learned. Channel c is row c / 2 and column c mod 2 of the block.
//   pixels [b, 1, F, h, w], h and w even
//     -> raw_latents [b, 4, F, h/2, w/2], latents = (raw_latents - mean) / std
//   latents -> pixels
class PixelShuffle : public lb::Network {
 public:
  static constexpr const char* kind = "limbeck.vae/1";
  static constexpr const char* provides[] = {"limbeck.vae/1", "limbeck.differentiable/1"};

  struct Options {
    // Of each channel over the first 2000 training clips of digit_clips.
    std::vector<double> mean{-0.6868, -0.7061, -0.6768, -0.6960};
    std::vector<double> std{0.6208, 0.6002, 0.6384, 0.6113};

    template <class V>
    void visit(V& v) {
      v("mean", mean, "Mean of each of the four latent channels.");
      v("std", std, "Standard deviation of each of the four latent channels.", "(0, inf)");
    }
  };

  PixelShuffle(const Options& options, const lb::Builder& builder);

  void describe(lb::Batch& facts) override;
  void forward(const lb::Units& units, const lb::Batch& in, lb::Batch& out) override;

 private:
  Options options_;
};

}  // namespace quickstart
