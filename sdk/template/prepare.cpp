// SPDX-License-Identifier: Apache-2.0
// A prepare hook: it changes samples before the method sees them. A manifest uses it like this:
//
//   [[prepare]]
//   type = "my_plugin"
//   rate = 0.5
#include <limbeck/plugin.hpp>

namespace {

// Mirrors some of the samples from left to right. It belongs before the hook that draws noise.
class MyPrepare : public lb::Prepare {
 public:
  struct Options {
    double rate = 0.5;

    template <class V>
    void visit(V& v) {
      v("rate", rate, "Share of samples that are mirrored.", "[0, 1]");
    }
  };
  static constexpr const char* reads[] = {"raw_latents"};
  static constexpr const char* writes[] = {"raw_latents"};

  explicit MyPrepare(const Options& options) : rate_(options.rate) {}

  void prepare(const lb::Step& step, lb::Batch& batch) override {
    const auto latents = batch["raw_latents"];  // [b, c, T, H, W]
    const auto samples = latents.size(0);
    // A draw is named, not consumed: the same step and sample always give the same number.
    const auto mirrored =
        step.uniform("my_plugin", {samples}).lt(rate_).reshape({samples, 1, 1, 1, 1});
    batch.set("raw_latents", lb::where(mirrored, latents.flip({4}), latents));
  }

 private:
  double rate_;
};

}  // namespace

LB_PLUGIN(lb::prepare<MyPrepare>("my_plugin", "Mirrors samples from left to right."))
