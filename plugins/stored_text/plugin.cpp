// SPDX-License-Identifier: Apache-2.0
// The text encoder "stored_text": one embedding that was computed elsewhere, whatever the prompt.
#include <limbeck/plugin.hpp>

namespace {

// Stands in for a text encoder where only one prompt is ever encoded, such as the negative prompt
// of guidance. `init_from` is a folder with a safetensors file of one tensor "context",
// [tokens, width]; every row of `prompt` gets it.
class StoredText final : public lb::Network {
 public:
  struct Options {
    int64_t tokens = 0;
    int64_t width = 0;

    template <class V>
    void visit(V& v) {
      v.required("tokens", tokens, "Tokens of the embedding.", "[1, inf)");
      v.required("width", width, "Width of a token.", "[1, inf)");
    }
  };
  static constexpr const char* kind = "limbeck.text-encoder/1";
  static constexpr const char* provides[] = {"limbeck.text-encoder/1"};

  StoredText(const Options& options, const lb::Builder& builder)
      : options_(options),
        context_(builder.param(LB_ROOT, "context", {options.tokens, options.width}, "zeros")) {}

  void describe(lb::Batch& facts) override {
    facts.set("context.tokens", options_.tokens).set("context.width", options_.width);
  }

  void forward(const lb::Units& units, const lb::Batch& in, lb::Batch& out) override {
    const auto count = static_cast<int64_t>(in.rows("prompt"));
    const auto body = [context = context_](const lb::Call& call) {
      return call.param(context) * 1.0;
    };
    const auto one = units.run(LB_ROOT, {}, body).unsqueeze(0);
    out.set("context", one.expand({count, options_.tokens, options_.width}).contiguous());
    out.set("context_mask", lb::ones({count, options_.tokens}));
  }

 private:
  Options options_;
  lb::Param context_;
};

}  // namespace

LB_PLUGIN(lb::network<StoredText>(
    "stored_text", "One text embedding that was computed elsewhere, for every prompt."))
