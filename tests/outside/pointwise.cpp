// SPDX-License-Identifier: Apache-2.0
// A family of models of its own: every latent position on its own goes through a small network
// with the noise level and the mean of the text. It shares libtorch with the host.
#include <limbeck/native.hpp>

#include <limbeck/network.hpp>

namespace {

class Pointwise : public lb::Network {
 public:
  struct Options {
    int64_t channels = 16;
    int64_t width = 64;
    int64_t text_dim = 32;

    template <class Visitor>
    void visit(Visitor& v) {
      v("channels", channels, "Channels of the latents.", "[1, inf)");
      v("width", width, "Width of the hidden layer.", "[1, inf)");
      v("text_dim", text_dim, "Width of the text embedding.", "[1, inf)");
    }
  };

  static constexpr const char* kind = "limbeck.model/1";
  static constexpr const char* provides[] = {"limbeck.video-dit/1", nullptr};

  Pointwise(const Options& options, const lb::Builder& builder) : options_(options) {
    constexpr uint32_t kLinear = LB_PARAM_LINEAR | LB_PARAM_VIA_LINEAR;
    const auto inputs = options.channels + 1 + options.text_dim;
    in_ = builder.param(LB_ROOT, "in.weight", {options.width, inputs}, "xavier_uniform", kLinear);
    in_bias_ = builder.param(LB_ROOT, "in.bias", {options.width}, "zeros", LB_PARAM_NO_DECAY);
    out_ =
        builder.param(LB_ROOT, "out.weight", {options.channels, options.width}, "zeros", kLinear);
  }

  void describe(lb::Batch& facts) override {
    facts.set("latent_channels", options_.channels).set("context.width", options_.text_dim);
  }

  void forward(const lb::Units& units, const lb::Batch& in, lb::Batch& out) override {
    namespace native = lb::native;
    const at::Tensor noisy = native::of(in["noisy"]);  // [b, c, T, H, W]
    const at::Tensor level = native::of(in["timestep"]) / 1000;
    const at::Tensor text = native::of(in["context"]).mean(1);
    const auto x = noisy.flatten(2).transpose(1, 2);  // [b, positions, c]
    const auto positions = x.size(1);
    const auto spread = [&](const at::Tensor& per_sample) {
      return per_sample.unsqueeze(1).expand({-1, positions, -1});
    };
    const auto all = at::cat({x, spread(level.unsqueeze(1)), spread(text)}, 2);
    const auto body = [in_w = in_, in_b = in_bias_, out_w = out_](const lb::Call& call) {
      const auto hidden = native::of(call.linear(in_w, in_b, call.in(0)));
      return call.linear(out_w, LB_NO_PARAM, native::wrap(at::silu(hidden)));
    };
    const auto velocity = units.run(LB_ROOT, {native::wrap(all)}, body);
    out.set("velocity", native::wrap(native::of(velocity).transpose(1, 2).reshape(noisy.sizes())));
  }

 private:
  Options options_;
  lb::Param in_ = LB_NO_PARAM;
  lb::Param in_bias_ = LB_NO_PARAM;
  lb::Param out_ = LB_NO_PARAM;
};

}  // namespace

LB_PLUGIN(lb::network<Pointwise>("pointwise", "A small network at every latent position."))
