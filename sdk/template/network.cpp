// SPDX-License-Identifier: Apache-2.0
// A network: it declares parameters, which the host allocates, trains, averages and saves, and says
// how to get from inputs to outputs. The capability that it provides fixes their names. A manifest
// uses it like this:
//
//   [models.student]
//   type = "my_plugin"
//   [models.student.config]
//   channels = 4
#include <limbeck/plugin.hpp>

namespace {

// Every latent position on its own goes through a small network with the noise level and the mean
// of the text.
class MyNetwork : public lb::Network {
 public:
  struct Options {
    int64_t channels = 16;
    int64_t width = 64;
    int64_t text_dim = 32;

    template <class V>
    void visit(V& v) {
      v("channels", channels, "Channels of the latents.", "[1, inf)");
      v("width", width, "Width of the hidden layer.", "[1, inf)");
      v("text_dim", text_dim, "Width of the text embedding.", "[1, inf)");
    }
  };
  static constexpr const char* kind = "limbeck.model/1";
  static constexpr const char* provides[] = {"limbeck.video-dit/1"};

  MyNetwork(const Options& options, const lb::Builder& builder) : options_(options) {
    constexpr uint32_t kLinear = LB_PARAM_LINEAR | LB_PARAM_VIA_LINEAR;
    const auto inputs = options.channels + 1 + options.text_dim;
    in_ = builder.param(LB_ROOT, "in.weight", {options.width, inputs}, "xavier_uniform", kLinear);
    bias_ = builder.param(LB_ROOT, "in.bias", {options.width}, "zeros", LB_PARAM_NO_DECAY);
    out_ =
        builder.param(LB_ROOT, "out.weight", {options.channels, options.width}, "zeros", kLinear);
  }

  void describe(lb::Batch& facts) override {
    facts.set("latent_channels", options_.channels).set("context.width", options_.text_dim);
  }

  void forward(const lb::Units& units, const lb::Batch& in, lb::Batch& out) override {
    const auto noisy = in["noisy"].to(units.dtype());  // [b, c, T, H, W]
    const auto x = noisy.flatten(2).transpose(1, 2);   // [b, positions, c]
    // One value per sample for every position.
    const auto spread = [&](const lb::Tensor& rows) {
      return rows.to(units.dtype()).unsqueeze(1).expand({x.size(0), x.size(1), rows.size(1)});
    };
    const auto level = (in["timestep"] / 1000.0).unsqueeze(1);  // [b, 1]
    const auto text = in["context"].mean({1});                  // [b, text_dim]
    const auto all = lb::cat({x, spread(level), spread(text)}, 2);
    // The body may run again during backward: it captures numbers, no tensors.
    const auto body = [weight = in_, bias = bias_, last = out_](const lb::Call& call) {
      const auto hidden = call.linear(weight, bias, call.in(0));
      return call.linear(last, LB_NO_PARAM, hidden * hidden.sigmoid());
    };
    const auto velocity = units.run(LB_ROOT, {all}, body);
    out.set("velocity", velocity.transpose(1, 2).reshape(noisy.sizes()));
  }

 private:
  Options options_;
  lb::Param in_ = LB_NO_PARAM;
  lb::Param bias_ = LB_NO_PARAM;
  lb::Param out_ = LB_NO_PARAM;
};

}  // namespace

LB_PLUGIN(lb::network<MyNetwork>("my_plugin", "A small network at every latent position."))
