// SPDX-License-Identifier: Apache-2.0
// A term of the loss. A manifest uses it like this:
//
//   plugins = ["wan", "sft", "basics", "parquet", "./build/my_plugin.so"]
//
//   [[losses]]
//   type = "my_plugin"
//   weight = 1.0
//   delta = 0.03
#include <limbeck/plugin.hpp>

namespace {

// mean(sqrt((prediction - target)^2 + delta^2) - delta): quadratic near zero, linear far from it.
class MyLoss : public lb::Loss {
 public:
  struct Options {
    double delta = 0.03;

    template <class V>
    void visit(V& v) {
      v("delta", delta, "Error at which the loss turns from quadratic to linear.", "(0, inf)");
    }
  };
  static constexpr const char* reads[] = {"prediction", "target"};

  explicit MyLoss(const Options& options) : delta_(options.delta) {}

  lb::Tensor loss(const lb::Step& step, const lb::Batch& values) override {
    const auto error = values["prediction"].to(LB_F32) - values["target"].to(LB_F32);
    step.log("my_plugin/max_error", error.detach().abs().max(), LB_MAX);
    return ((error.square() + delta_ * delta_).sqrt() - delta_).mean();
  }

 private:
  double delta_;
};

}  // namespace

LB_PLUGIN(lb::loss<MyLoss>("my_plugin", "Pseudo-Huber loss of the prediction."))
