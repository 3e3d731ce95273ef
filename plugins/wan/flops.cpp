// SPDX-License-Identifier: Apache-2.0
#include "flops.hpp"

namespace wan {

double forward_flops(const WorkSizes& sizes) {
  const auto b = static_cast<double>(sizes.samples);
  const auto q = static_cast<double>(sizes.frames * sizes.per_frame);
  const auto c = static_cast<double>(sizes.context);
  const auto d = static_cast<double>(sizes.width);
  const auto f = static_cast<double>(sizes.ffn);
  const double self = 8 * q * d * d + 4 * q * q * d;
  const double cross = 4 * q * d * d + 4 * c * d * d + 4 * q * c * d;
  const double feed_forward = 4 * q * d * f;
  return static_cast<double>(sizes.layers) * b * (self + cross + feed_forward);
}

void report_work(const WorkSizes& sizes, lb::Batch& out) {
  const auto samples = static_cast<double>(sizes.samples);
  const auto tokens = static_cast<double>(sizes.frames * sizes.per_frame);
  out.set("work.flops", forward_flops(sizes))
      .set("work.tokens", samples * tokens)
      .set("work.frames", samples * static_cast<double>(sizes.frames))
      .set("work.pairs", samples * tokens * tokens)
      .set("work.dense_pairs", samples * tokens * tokens);
}

}  // namespace wan
