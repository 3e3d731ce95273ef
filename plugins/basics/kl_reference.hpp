// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <limbeck/loss.hpp>

#include "basics/velocity_error.hpp"

namespace basics {

// Keeps the trained network near a reference: velocity_error() of their velocities on the same
// mixture. Where both are means of Gaussians of variance s^2 per element, their Kullback-Leibler
// divergence per element is this over 2 s^2; the term's `weight` stands for that factor.
//
// The reference is a frozen network, or the trained one with its adapters off, which needs no
// second copy of the weights.
class KlReference final : public lb::Loss {
 public:
  enum : uint32_t { kReference, kStudent };
  static constexpr lb_role needs[] = {
      {"reference", "What to stay near to, with reference = \"role\".", "limbeck.video-dit/1",
       lb::kOptional, 0},
      {"student", "The trained network, run without its adapters with reference = \"base\".",
       "limbeck.video-dit/1", lb::kOptional, 0}};
  static constexpr const char* reads[] = {"velocity", "noisy",   "timestep", "context?",
                                          "sigma?",   "weight?", "mask?"};

  struct Options {
    std::string reference = "role";
    LevelWeight level;

    template <class V>
    void visit(V& v) {
      v.choice("reference", reference,
               "What to stay near to: `role` is the network of [models.reference], `base` the role "
               "student with its adapters off.",
               {"role", "base"});
      level.visit(v);
    }
  };

  explicit KlReference(const Options& options) : options_(options) {}

  lb::Tensor loss(const lb::Step& step, const lb::Batch& values) override;

 private:
  // Throws unless the run has what the option asks for, and nothing that it makes idle.
  void check(const lb::Models& models) const;

  Options options_;
};

}  // namespace basics
