// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <limbeck/diffusion/score.hpp>
#include <limbeck/loss.hpp>

#include "basics/guided_teacher.hpp"

namespace basics {

// Distribution matching (limbeck/diffusion/score.hpp) as a term of a sum: the clean sample x that
// the trained network's velocity implies is noised anew, to a level of its own, and moves along the
// difference of what a frozen teacher and a network of the student's samples make of that.
//
//   x = noisy - sigma velocity;  y = (1 - sigma') x + sigma' noise'
//   g = (fake - real) / mean |x - real|;  real = x0 of the teacher at y
//   L = sum_j m_j w_j g_j^2 / 2 / max(1, sum_j m_j), with gradient m w g / max(1, sum m) at x
//
// w is the entry `weight` [b] if there is one, m the entry `mask`, as in velocity_error().
// fake is x0 at y of the role `critic` if it is filled, else of the student itself. The term trains
// neither: a critic that is to follow the student is trained by a method with that role, and is
// frozen under any other. Without one the student stands still where it predicts what the teacher
// does.
//
// Draws "teacher_score.level" and "teacher_score.noise". Metrics "teacher_score/grad_abs_mean" (of
// g), "teacher_score/norm" and "teacher_score/nonfinite" (elements of g that counted as 0).
class TeacherScore final : public lb::Loss {
 public:
  enum : uint32_t { kCritic = 2, kStudent };
  static constexpr lb_role needs[] = {
      kTeacherRole,
      kTextEncoderRole,
      {"critic", "Knows the student's samples; left out: the student itself.",
       "limbeck.video-dit/1", lb::kOptional, 0},
      {"student", "The trained network.", "limbeck.video-dit/1", lb::kFrozen, 0}};
  static constexpr const char* reads[] = {"velocity", "noisy",   "timestep",
                                          "context?", "weight?", "mask?"};

  struct Options {
    GuidedTeacher::Options teacher;
    double min_timestep_ratio = 0.0;
    double max_timestep_ratio = 1.0;
    double flow_shift = 0.0;
    std::string normalizer = "sample";

    template <class V>
    void visit(V& v) {
      teacher.visit(v);
      v("min_timestep_ratio", min_timestep_ratio,
        "Lowest noise level at which the two are compared.", "[0, 1]");
      v("max_timestep_ratio", max_timestep_ratio,
        "Highest noise level at which the two are compared.", "[0, 1]");
      v("flow_shift", flow_shift,
        "Shift of these levels towards noise; 0 takes that of [pipeline].", "[0, inf)");
      v.choice("normalizer", normalizer,
               "What the mean distance of sample and teacher is over, by which the difference is "
               "divided.",
               {"sample", "frame", "batch"});
    }
  };

  explicit TeacherScore(const Options& options);

  lb::Tensor loss(const lb::Step& step, const lb::Batch& values) override;

 private:
  Options options_;
  GuidedTeacher teacher_;
  lb::diffusion::ScoreNorm norm_;
};

}  // namespace basics
