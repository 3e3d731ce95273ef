// SPDX-License-Identifier: Apache-2.0
#include "basics/text_dropout.hpp"

namespace basics {
namespace {

constexpr uint32_t kEmptyPromptEncoder = 0;

// Appends zeros along dimension 1 up to `tokens`.
lb::Tensor pad(const lb::Tensor& x, int64_t tokens) {
  std::vector<int64_t> missing = x.sizes();
  missing[1] = tokens - missing[1];
  return missing[1] == 0 ? x : lb::cat({x, lb::zeros(missing, x.dtype())}, 1);
}

}  // namespace

const TextDropout::Encoding& TextDropout::empty_prompt(const lb::Step& step, int64_t tokens) {
  if (!empty_.context.defined()) {
    if (!step.models().has(kEmptyPromptEncoder)) {
      throw lb::Error(LB_FAILED_PRECONDITION,
                      "mode \"empty_prompt\" needs a text encoder: add [models.text_encoder], or "
                      "use mode = \"zero\"");
    }
    const lb::Batch encoded =
        step.models().run(kEmptyPromptEncoder, lb::Batch().set("prompt", ""), LB_RUN_NO_GRAD);
    empty_.context = encoded["context"];
    empty_.mask = encoded.find("context_mask");
  }
  if (empty_.context.size(1) > tokens) {
    throw lb::Error(LB_INVALID_ARGUMENT, "the empty prompt has " +
                                             std::to_string(empty_.context.size(1)) +
                                             " tokens and 'context' of the batch has room for " +
                                             std::to_string(tokens));
  }
  return empty_;
}

void TextDropout::prepare(const lb::Step& step, lb::Batch& batch) {
  if (options_.rate <= 0.0) {
    return;
  }
  const lb::Tensor context = batch["context"];
  const int64_t samples = context.size(0);
  const int64_t tokens = context.size(1);
  const lb::Tensor is_dropped =
      step.uniform("text_dropout", {samples}).lt(options_.rate).reshape({samples, 1, 1});
  if (options_.mode == "zero") {
    static const lb::Op masked_fill("aten::masked_fill", "Scalar");
    batch.set("context", masked_fill({context, is_dropped, 0.0}));
    return;
  }
  const Encoding& empty = empty_prompt(step, tokens);
  batch.set("context",
            lb::where(is_dropped, pad(empty.context, tokens).to(context.dtype()), context));
  const lb::Tensor mask = batch.find("context_mask");
  if (mask.defined() && empty.mask.defined()) {
    batch.set("context_mask", lb::where(is_dropped.reshape({samples, 1}),
                                        pad(empty.mask, tokens).to(mask.dtype()), mask));
  }
}

}  // namespace basics
