// SPDX-License-Identifier: Apache-2.0
// The callback "digits_report".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <limbeck/callback.hpp>

#include "quickstart/bands.hpp"
#include "quickstart/digits.hpp"
#include "quickstart/judging.hpp"
#include "quickstart/report.hpp"

namespace quickstart {

// Samples clips of all digits, always from the same noise, and measures them with the judge:
//   acc   frames that are classified as the requested digit
//   clip  the same after averaging the frames of a clip
//   fd    Frechet distance of the judge's features to those of real clips
//   mot   how rigidly the digit moves (rigid_motion())
//   div   how different clips of one digit are (diversity())
// At the end of a run it compares samplers (40, 4 and 1 Euler steps, with and without guidance)
// and writes to <output_dir>: report.json, report.txt, samples.png, samples.gif, loss.png. With
// `few_steps` it compares the student's few-step samplers (diffusion/sampler.hpp, renoise_step())
// with the teacher instead, and the pictures show all of them. At a validation it measures the
// best sampler only. Averaged weights are used where there are any.
class DigitsReport : public lb::Callback {
 public:
  static constexpr lb_role needs[] = {
      {"student", "The network that is sampled.", "limbeck.video-dit/1", lb::kFrozen, 0},
      {"vae", "Decodes clips.", "limbeck.vae/1", lb::kFrozen, 0},
      {"text_encoder", "Encodes \"digit 0\" to \"digit 9\".", "limbeck.text-encoder/1", lb::kFrozen,
       0},
      {"judge", "Names the digit of a frame.", "limbeck.reward/1", lb::kFrozen, 0},
      {"teacher", "What a distilled student is compared with.", "limbeck.video-dit/1",
       lb::kOptional, 0}};
  static constexpr uint64_t events = (uint64_t{1} << LB_ON_START) | (uint64_t{1} << LB_ON_STEP) |
                                     (uint64_t{1} << LB_ON_VALIDATE) | (uint64_t{1} << LB_ON_END);

  struct Options {
    std::string file;
    int64_t clips_per_digit = 20;
    int64_t batch_size = 100;
    int64_t loss_steps = 100;
    std::vector<int64_t> few_steps;

    template <class V>
    void visit(V& v) {
      v.required_path("file", file, "Digits as text, the file of digit_clips.");
      v("clips_per_digit", clips_per_digit, "Clips sampled of every digit.", "[2, inf)");
      v("batch_size", batch_size, "Clips sampled together.", "[1, inf)");
      v("loss_steps", loss_steps, "Steps at the end of the run whose loss is averaged.",
        "[1, inf)");
      v("few_steps", few_steps,
        "Numbers of steps with which a distilled student is sampled, first the one it was trained "
        "for; none: the student is no distilled one.",
        "[1, 1000]");
    }
  };

  explicit DigitsReport(const Options& options) : options_(options) {}

  void event(const lb::Event& event) override;
  void save(lb::Writer& writer) override;
  void load(const lb::Reader& reader) override;

 private:
  struct Sampler;
  struct Measures;
  struct Column;

  std::vector<int64_t> labels() const;
  std::vector<Sampler> samplers(const lb::Models& models) const;
  lb::Tensor sample(const lb::Event& event, const Sampler& sampler);
  lb::Tensor denoise(const lb::Event& event,
                     const Sampler& sampler,
                     const lb::Tensor& noise,
                     int64_t first,
                     int64_t count) const;
  Measures measure(const lb::Event& event, const lb::Tensor& pixels);
  void validate(const lb::Event& event);
  void finish(const lb::Event& event);
  void report_losses(Report& report, const std::string& folder) const;
  void draw_samples(const std::string& folder, const std::vector<Column>& columns) const;
  void draw_loss(const std::string& folder) const;

  Options options_;
  std::vector<Digit> digits_;
  std::optional<FeatureSet> real_;  // of real clips, computed when first needed
  std::vector<double> loss_steps_;
  std::vector<double> losses_;
};

}  // namespace quickstart
