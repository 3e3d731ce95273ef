// SPDX-License-Identifier: Apache-2.0
// A data set: samples by index. Order, shuffling, epochs and batches are the host's. A manifest
// uses it like this:
//
//   [training.data]
//   type = "my_plugin"
//   samples = 64
#include <cmath>

#include <limbeck/plugin.hpp>

namespace {

constexpr int64_t kChannels = 4;
constexpr int64_t kFrames = 2;
constexpr int64_t kSide = 8;
constexpr int64_t kTokens = 4;
constexpr int64_t kWidth = 32;

// Waves that move from frame to frame, each with a direction of its own and a text that names it.
class MyDataset : public lb::Dataset {
 public:
  struct Options {
    int64_t samples = 64;

    template <class V>
    void visit(V& v) {
      v("samples", samples, "How many there are.", "[1, inf)");
    }
  };

  MyDataset(const Options& options, const lb_source&) : samples_(options.samples) {}

  int64_t length() override { return samples_; }

  std::vector<lb::Field> fields() override {
    return {{"raw_latents", {kChannels, kFrames, kSide, kSide}},
            {"context", {kTokens, kWidth}},
            lb::Field::text("caption")};
  }

  void read(int64_t index, lb::Batch& sample) override {
    const double angle =
        6.283185307179586 * static_cast<double>(index) / static_cast<double>(samples_);
    std::vector<double> latents;
    for (int64_t c = 0; c < kChannels; ++c) {
      for (int64_t t = 0; t < kFrames; ++t) {
        for (int64_t y = 0; y < kSide; ++y) {
          for (int64_t x = 0; x < kSide; ++x) {
            const double place =
                std::cos(angle) * static_cast<double>(x) + std::sin(angle) * static_cast<double>(y);
            latents.push_back(std::sin(place - static_cast<double>(t) + static_cast<double>(c)));
          }
        }
      }
    }
    const std::vector<double> context(kTokens * kWidth, angle);
    sample.set("raw_latents", lb::tensor(latents, {kChannels, kFrames, kSide, kSide}).to(LB_F32));
    sample.set("context", lb::tensor(context, {kTokens, kWidth}).to(LB_F32));
    sample.set("caption", "a wave at " + std::to_string(angle));
  }

 private:
  int64_t samples_;
};

}  // namespace

LB_PLUGIN(lb::dataset<MyDataset>("my_plugin", "Moving waves."))
