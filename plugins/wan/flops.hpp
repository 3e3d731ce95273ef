// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <limbeck/batch.hpp>

namespace wan {

// Sizes that decide what a forward costs.
struct WorkSizes {
  int64_t samples = 0;
  int64_t frames = 0;     // in tokens, of a sample
  int64_t per_frame = 0;  // tokens of a frame
  int64_t context = 0;    // text tokens of a sample
  int64_t width = 0;      // of a token
  int64_t ffn = 0;        // inner width of the feed-forward layers
  int64_t layers = 0;
};

// Floating-point operations of the blocks in one forward: matrix products and attention, two for a
// multiply-add. With b samples of Q tokens, P = Q^2 pairs, C context tokens, width d, inner width
// f, for each of the layers
//   8 b Q d^2 (self q, k, v, out) + 4 b P d (self-attention) + 4 b Q d^2 (cross q, out)
//   + 4 b C d^2 (cross k, v) + 4 b Q C d (cross-attention) + 4 b Q d f (feed-forward)
// Embeddings, norms, modulation and the head are left out, as the published counts do.
double forward_flops(const WorkSizes& sizes);

// Adds the entries "work.<name>" of docs/abi/capabilities.md to the outputs of a forward with dense
// attention.
void report_work(const WorkSizes& sizes, lb::Batch& out);

}  // namespace wan
