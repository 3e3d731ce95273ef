// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <limbeck/prepare.hpp>

namespace basics {

// Takes the text from a share of the samples, so that a model also learns to predict without it,
// which guidance needs. A sample loses its text when its number of draw "text_dropout" is below
// `rate`.
//
// Mode "zero": its rows of `context` become zero, `context_mask` stays. Mode "empty_prompt": both
// become what the text encoder gives for an empty prompt, padded with zeros.
class TextDropout final : public lb::Prepare {
 public:
  static constexpr lb_role needs[] = {{"text_encoder",
                                       "Encodes the empty prompt in mode \"empty_prompt\".",
                                       "limbeck.text-encoder/1", lb::kOptional, 0}};
  static constexpr const char* reads[] = {"context", "context_mask?"};
  static constexpr const char* writes[] = {"context"};

  struct Options {
    double rate = 0.1;
    std::string mode = "zero";

    template <class V>
    void visit(V& v) {
      v("rate", rate, "Share of samples that lose their text.", "[0, 1]")
          .alias("training.data.training_cfg_rate");
      v.choice("mode", mode,
               "What stands in for the text: zeros, or the encoding of an empty prompt (needs the "
               "role text_encoder).",
               {"zero", "empty_prompt"});
    }
  };

  explicit TextDropout(const Options& options) : options_(options) {}

  void prepare(const lb::Step& step, lb::Batch& batch) override;

 private:
  // The empty prompt as [1, tokens, width] and [1, tokens].
  struct Encoding {
    lb::Tensor context;
    lb::Tensor mask;
  };
  const Encoding& empty_prompt(const lb::Step& step, int64_t tokens);

  Options options_;
  Encoding empty_;  // made when first needed
};

}  // namespace basics
