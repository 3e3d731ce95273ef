// SPDX-License-Identifier: Apache-2.0
#include "quickstart/digits_report.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include <limbeck/diffusion/guidance.hpp>
#include <limbeck/diffusion/sampler.hpp>

#include "media/chart.hpp"
#include "media/gif.hpp"
#include "media/image.hpp"
#include "media/png.hpp"

namespace quickstart {
namespace {

enum Role : uint32_t { kStudent, kVae, kTextEncoder, kJudge };

constexpr const char* kName = "digits_report";
constexpr int64_t kRealClipsPerDigit = 50;

ClipSet clip_set(const lb::Tensor& pixels) {
  const auto sizes = pixels.sizes();
  return {sizes[0], sizes[2], sizes[3], sizes[4], pixels.to_vector<float>()};
}

media::Image frame_image(const ClipSet& clips, int64_t clip, int64_t frame) {
  return media::from_planes(clips.frame(clip, frame), 1, static_cast<int>(clips.height),
                            static_cast<int>(clips.width), clips.height * clips.width);
}

}  // namespace

struct DigitsReport::Sampler {
  const char* name;
  int64_t steps;
  double guidance;  // 1: none
  SamplerBands bands;
};

struct DigitsReport::Measures {
  double acc, clip, fd, mot, div;
};

void DigitsReport::event(const lb::Event& event) {
  switch (event.kind()) {
    case LB_ON_START:
      digits_ = read_digits(options_.file);
      break;
    case LB_ON_STEP:
      if (event.values().kind("loss") == LB_ENTRY_NUMBER) {
        loss_steps_.push_back(static_cast<double>(event.step()));
        losses_.push_back(event.values().number("loss"));
      }
      break;
    case LB_ON_VALIDATE:
      validate(event);
      break;
    default:
      finish(event);
  }
}

// Clip k shows digit k mod 10.
std::vector<int64_t> DigitsReport::labels() const {
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < options_.clips_per_digit * kClasses; ++i) {
    labels.push_back(i % kClasses);
  }
  return labels;
}

// Pixels [n, 1, F, h, w], one clip for each of labels().
lb::Tensor DigitsReport::sample(const lb::Event& event, const Sampler& sampler) {
  const auto models = event.models();
  const bool is_guided = sampler.guidance != 1;
  const uint32_t flags =
      models.has(kStudent, "limbeck.averaged/1") ? LB_RUN_AVERAGED : LB_RUN_NO_GRAD;
  const auto levels =
      lb::diffusion::euler_sigmas(sampler.steps, event.facts().number("pipeline.flow_shift", 1));
  const double time_scale = models.facts(kStudent).number("time_scale", lb::diffusion::kTimeScale);

  lb::Batch real;
  real.set("pixels", clip_tensor(Clips(digits_, Split::kTrain), {0}));
  auto shape = models.run(kVae, real, LB_RUN_NO_GRAD)["latents"].sizes();
  const auto wanted = labels();
  shape[0] = static_cast<int64_t>(wanted.size());
  // Not the event's own draws: the noise must be that of every other step and run.
  const auto noise = lb::Draws(/*step=*/0, /*micro=*/0).normal("digits_report", shape);

  std::vector<lb::Tensor> parts;
  for (int64_t begin = 0; begin < shape[0]; begin += options_.batch_size) {
    const auto count = std::min(options_.batch_size, shape[0] - begin);
    std::vector<std::string> prompts;
    for (int64_t i = 0; i < count; ++i) {
      prompts.push_back(prompt_of(wanted[static_cast<size_t>(begin + i)]));
    }
    lb::Batch texts;
    texts.set("prompt", prompts);
    lb::Batch conditional = models.run(kTextEncoder, texts, LB_RUN_NO_GRAD);
    lb::Batch unconditional;
    if (is_guided) {
      texts.set("prompt", std::vector<std::string>(prompts.size()));
      unconditional = models.run(kTextEncoder, texts, LB_RUN_NO_GRAD);
    }
    auto x = noise.narrow(0, begin, count);
    for (int64_t step = 0; step < sampler.steps; ++step) {
      const double level = levels[static_cast<size_t>(step)];
      const double next = levels[static_cast<size_t>(step) + 1];
      const auto timestep = lb::full({count}, level * time_scale);
      const auto velocity_of = [&](lb::Batch& in) {
        in.set("noisy", x).set("timestep", timestep);
        return models.run(kStudent, in, flags)["velocity"];
      };
      auto velocity = velocity_of(conditional);
      if (is_guided) {
        velocity = lb::diffusion::guide(velocity_of(unconditional), velocity, sampler.guidance);
      }
      x = lb::diffusion::euler_step(x, velocity, level, next);
    }
    lb::Batch latents;
    latents.set("latents", x);
    parts.push_back(models.run(kVae, latents, LB_RUN_NO_GRAD)["pixels"].clamp(-1, 1));
  }
  return lb::cat(parts, 0);
}

DigitsReport::Measures DigitsReport::measure(const lb::Event& event, const lb::Tensor& pixels) {
  const auto models = event.models();
  if (!real_) {
    const Clips train(digits_, Split::kTrain);
    const auto chosen = first_clips(train, kRealClipsPerDigit);
    std::vector<int64_t> real_labels;
    for (const auto clip : chosen) {
      real_labels.push_back(train.label(clip));
    }
    real_ = judge(models, kJudge, clip_tensor(train, chosen), real_labels).features;
  }
  const auto wanted = labels();
  const auto verdict = judge(models, kJudge, pixels, wanted);
  const auto clips = clip_set(pixels);
  return {verdict.frame_accuracy, verdict.clip_accuracy, frechet_distance(verdict.features, *real_),
          rigid_motion(clips), diversity(clips, wanted)};
}

void DigitsReport::validate(const lb::Event& event) {
  const auto measures = measure(event, sample(event, {"", 40, 2, {}}));
  event.log("digits.acc", measures.acc, LB_LAST);
  event.log("digits.clip", measures.clip, LB_LAST);
  event.log("digits.fd", measures.fd, LB_LAST);
  event.log("digits.mot", measures.mot, LB_LAST);
  event.log("digits.div", measures.div, LB_LAST);
}

void DigitsReport::finish(const lb::Event& event) {
  constexpr Sampler kSamplers[] = {{"euler40_cfg2", 40, 2, kGuidedBands},
                                   {"euler40", 40, 1, {}},
                                   {"euler4_cfg2", 4, 2, {}},
                                   {"euler4", 4, 1, kNaiveBands},
                                   {"euler1", 1, 1, {}}};
  const auto folder = event.facts().text("run.output_dir");
  Report report;
  report.add("judge.frame_accuracy",
             judge(event.models(), kJudge, Clips(digits_, Split::kHeldOut)).frame_accuracy,
             kJudgeBand);
  if (!losses_.empty()) {
    const auto count = std::min<size_t>(losses_.size(), static_cast<size_t>(options_.loss_steps));
    double sum = 0;
    for (size_t i = losses_.size() - count; i < losses_.size(); ++i) {
      sum += losses_[i];
    }
    report.add("loss.last_" + std::to_string(count), sum / static_cast<double>(count), kLossBand);
    draw_loss(folder);
  }
  int64_t done = 0;
  for (const auto& sampler : kSamplers) {
    lb::progress("sampling digits", done++, std::size(kSamplers));
    const auto pixels = sample(event, sampler);
    const auto measures = measure(event, pixels);
    const std::string name = sampler.name;
    report.add(name + ".acc", measures.acc, sampler.bands.acc);
    report.add(name + ".clip", measures.clip, sampler.bands.clip);
    report.add(name + ".fd", measures.fd, sampler.bands.fd);
    report.add(name + ".mot", measures.mot, sampler.bands.mot);
    report.add(name + ".div", measures.div);
    if (done == 1) {
      draw_samples(folder, clip_set(pixels));
    }
  }
  for (const auto& value : report.values()) {
    event.log(("digits." + value.name).c_str(), value.value, LB_LAST);
  }
  write_text(folder, "report.json", report.json());
  write_text(folder, "report.txt", report.table());
  lb::log(report.has_passed() ? LB_INFO : LB_WARN, kName,
          "report.json, report.txt, samples.png, samples.gif and loss.png are in '" + folder +
              "'\n" + report.table());
}

// samples.png: a row for every digit with the frames of two clips. samples.gif: the same clips,
// playing.
void DigitsReport::draw_samples(const std::string& folder, const ClipSet& clips) const {
  constexpr int kClipsPerRow = 2;
  constexpr int kScale = 5;
  constexpr int kGap = 1;
  constexpr double kFramesPerSecond = 4;
  std::vector<media::Image> strips;
  std::vector<std::vector<media::Image>> playing(static_cast<size_t>(clips.frames));
  for (int64_t label = 0; label < kClasses; ++label) {
    for (int64_t column = 0; column < kClipsPerRow; ++column) {
      const auto clip = label + column * kClasses;
      std::vector<media::Image> frames;
      for (int64_t frame = 0; frame < clips.frames; ++frame) {
        frames.push_back(frame_image(clips, clip, frame));
        playing[static_cast<size_t>(frame)].push_back(frames.back());
      }
      strips.push_back(media::grid(frames, static_cast<int>(clips.frames), kGap));
    }
  }
  const std::filesystem::path target = folder;
  media::write_png(target / "samples.png",
                   media::enlarge(media::grid(strips, kClipsPerRow, kGap), kScale));
  std::vector<media::Image> animation;
  for (const auto& tiles : playing) {
    animation.push_back(media::enlarge(media::grid(tiles, 2 * kClipsPerRow, kGap), kScale));
  }
  media::write_gif(target / "samples.gif", animation, kFramesPerSecond);
}

void DigitsReport::draw_loss(const std::string& folder) const {
  media::Chart chart;
  chart.title = "training loss";
  chart.x_label = "step";
  media::write_png(std::filesystem::path(folder) / "loss.png",
                   media::draw_curve(loss_steps_, losses_, chart));
}

void DigitsReport::save(lb::Writer& writer) {
  const auto count = static_cast<int64_t>(losses_.size());
  writer.tensor("loss_steps", lb::tensor(loss_steps_, {count}, LB_CPU));
  writer.tensor("losses", lb::tensor(losses_, {count}, LB_CPU));
}

void DigitsReport::load(const lb::Reader& reader) {
  loss_steps_ = reader.tensor("loss_steps").to_vector<double>();
  losses_ = reader.tensor("losses").to_vector<double>();
}

}  // namespace quickstart
