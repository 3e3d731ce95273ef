// SPDX-License-Identifier: Apache-2.0
// What losses that learn from a teacher share: its role, its guidance.
#pragma once

#include <string>

#include <limbeck/loss.hpp>

namespace basics {

// A table of needs of a hook with a GuidedTeacher begins with these two.
inline constexpr lb_role kTeacherRole = {"teacher", "Knows the data, or what is to be learned.",
                                         "limbeck.video-dit/1", lb::kFrozen, 0};
inline constexpr lb_role kTextEncoderRole = {"text_encoder",
                                             "Encodes the negative prompt of guidance.",
                                             "limbeck.text-encoder/1", lb::kOptional, 0};

// A frozen network with classifier-free guidance in the standard convention, u + g (c - u).
class GuidedTeacher {
 public:
  enum : uint32_t { kTeacher, kTextEncoder };

  struct Options {
    double guidance_scale = 1.0;
    std::string cfg_uncond_text = "negative_prompt";
    std::string negative_prompt;

    template <class V>
    void visit(V& v) {
      v("guidance_scale", guidance_scale,
        "Guidance g of the teacher, u + g (c - u); 1 is without, and saves a pass.\n\nA strength w "
        "of trainers with c + w (c - u) is g = w + 1.",
        "[0, inf)");
      v.choice("cfg_uncond_text", cfg_uncond_text,
               "What guidance leads away from: `negative_prompt` through the role text_encoder, or "
               "`zero` for embeddings of zeros.",
               {"negative_prompt", "zero"});
      v("negative_prompt", negative_prompt, "What guidance leads away from.");
    }
  };

  explicit GuidedTeacher(const Options& options) : options_(options) {}

  // The guided velocity at `noisy` [b, c, T, h, w] and `timestep` [b] of 0 ... 1000, without
  // history, in f32 (f64 for a network in f64). `condition` has what the network reads beside them.
  lb::Tensor velocity(const lb::Step& step,
                      const lb::Batch& condition,
                      const lb::Tensor& noisy,
                      const lb::Tensor& timestep);

 private:
  // `condition` with the text that guidance leads away from, for `samples` samples.
  lb::Batch without_text(const lb::Step& step, const lb::Batch& condition, int64_t samples);

  Options options_;
  lb::Batch negative_;  // the negative prompt, encoded when first needed: [1, tokens, width]
};

}  // namespace basics
