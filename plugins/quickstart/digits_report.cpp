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

enum Role : uint32_t { kStudent, kVae, kTextEncoder, kJudge, kTeacher };

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
  std::string name;
  std::string heading;  // of its pictures
  uint32_t role;
  int64_t steps;
  double guidance;  // 1: none
  bool renoises;    // else Euler steps
  SamplerBands bands;
};

// Clips of a picture: clip `first` + d shows digit d.
struct DigitsReport::Column {
  std::string heading;
  ClipSet clips;
  int64_t first = 0;
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

std::vector<DigitsReport::Sampler> DigitsReport::samplers(const lb::Models& models) const {
  if (options_.few_steps.empty()) {
    return {{"euler40_cfg2", "", kStudent, 40, 2, false, kGuidedBands},
            {"euler40", "", kStudent, 40, 1, false, {}},
            {"euler4_cfg2", "", kStudent, 4, 2, false, {}},
            {"euler4", "", kStudent, 4, 1, false, kNaiveBands},
            {"euler1", "", kStudent, 1, 1, false, {}}};
  }
  std::vector<Sampler> all;
  if (models.has(kTeacher)) {
    const auto same = std::to_string(options_.few_steps[0]);
    all = {{"teacher40_cfg2", "teacher, 40 steps, CFG 2", kTeacher, 40, 2, false, {}},
           {"teacher" + same,
            "teacher, " + same + " steps",
            kTeacher,
            options_.few_steps[0],
            1,
            false,
            {}}};
  }
  for (const auto steps : options_.few_steps) {
    const auto number = std::to_string(steps);
    all.push_back({"student" + number, "student, " + number + (steps == 1 ? " step" : " steps"),
                   kStudent, steps, 1, true,
                   steps == options_.few_steps[0] ? kDistilledBands : SamplerBands{}});
  }
  return all;
}

// Pixels [n, 1, F, h, w], one clip for each of labels().
lb::Tensor DigitsReport::sample(const lb::Event& event, const Sampler& sampler) {
  const auto models = event.models();
  lb::Batch real;
  real.set("pixels", clip_tensor(Clips(digits_, Split::kTrain), {0}));
  auto shape = models.run(kVae, real, LB_RUN_NO_GRAD)["latents"].sizes();
  shape[0] = static_cast<int64_t>(labels().size());
  // Not the event's own draws: the noise must be that of every other step and run.
  const auto noise = lb::Draws(/*step=*/0, /*micro=*/0).normal("digits_report", shape);
  std::vector<lb::Tensor> parts;
  for (int64_t begin = 0; begin < shape[0]; begin += options_.batch_size) {
    const auto count = std::min(options_.batch_size, shape[0] - begin);
    lb::Batch latents;
    latents.set("latents", denoise(event, sampler, noise, begin, count));
    parts.push_back(models.run(kVae, latents, LB_RUN_NO_GRAD)["pixels"].clamp(-1, 1));
  }
  return lb::cat(parts, 0);
}

// Latents of the clips `first` to `first` + `count`; `noise` is that of all.
lb::Tensor DigitsReport::denoise(const lb::Event& event,
                                 const Sampler& sampler,
                                 const lb::Tensor& noise,
                                 int64_t first,
                                 int64_t count) const {
  const auto models = event.models();
  const bool is_guided = sampler.guidance != 1;
  const uint32_t flags =
      models.has(sampler.role, "limbeck.averaged/1") ? LB_RUN_AVERAGED : LB_RUN_NO_GRAD;
  const auto levels =
      lb::diffusion::euler_sigmas(sampler.steps, event.facts().number("pipeline.flow_shift", 1));
  const double time_scale =
      models.facts(sampler.role).number("time_scale", lb::diffusion::kTimeScale);
  const auto wanted = labels();
  std::vector<std::string> prompts;
  for (int64_t i = 0; i < count; ++i) {
    prompts.push_back(prompt_of(wanted[static_cast<size_t>(first + i)]));
  }
  lb::Batch texts;
  texts.set("prompt", prompts);
  lb::Batch conditional = models.run(kTextEncoder, texts, LB_RUN_NO_GRAD);
  lb::Batch unconditional;
  if (is_guided) {
    texts.set("prompt", std::vector<std::string>(prompts.size()));
    unconditional = models.run(kTextEncoder, texts, LB_RUN_NO_GRAD);
  }
  auto x = noise.narrow(0, first, count);
  for (int64_t step = 0; step < sampler.steps; ++step) {
    const double level = levels[static_cast<size_t>(step)];
    const double next = levels[static_cast<size_t>(step) + 1];
    const auto timestep = lb::full({count}, level * time_scale);
    const auto velocity_of = [&](lb::Batch& in) {
      in.set("noisy", x).set("timestep", timestep);
      return models.run(sampler.role, in, flags)["velocity"];
    };
    auto velocity = velocity_of(conditional);
    if (is_guided) {
      velocity = lb::diffusion::guide(velocity_of(unconditional), velocity, sampler.guidance);
    }
    if (sampler.renoises) {
      const auto fresh =
          lb::Draws(/*step=*/0, /*micro=*/0)
              .normal("digits_report.renoise", noise.sizes(), static_cast<uint32_t>(step))
              .narrow(0, first, count);
      x = lb::diffusion::renoise_step(x, velocity, level, next, fresh);
    } else {
      x = lb::diffusion::euler_step(x, velocity, level, next);
    }
  }
  return x;
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
  const auto all = samplers(event.models());
  const auto best =
      std::find_if(all.begin(), all.end(), [](const Sampler& one) { return one.role == kStudent; });
  const auto measures = measure(event, sample(event, *best));
  event.log("digits.acc", measures.acc, LB_LAST);
  event.log("digits.clip", measures.clip, LB_LAST);
  event.log("digits.fd", measures.fd, LB_LAST);
  event.log("digits.mot", measures.mot, LB_LAST);
  event.log("digits.div", measures.div, LB_LAST);
}

void DigitsReport::finish(const lb::Event& event) {
  const bool is_distilled = !options_.few_steps.empty();
  const auto folder = event.facts().text("run.output_dir");
  Report report;
  report.add("judge.frame_accuracy",
             judge(event.models(), kJudge, Clips(digits_, Split::kHeldOut)).frame_accuracy,
             kJudgeBand);
  report_losses(report, folder);
  std::vector<Column> columns;
  const auto all = samplers(event.models());
  double accuracy_of_teacher = 0;  // with as many steps as the student
  for (const auto& sampler : all) {
    lb::progress("sampling digits", static_cast<int64_t>(&sampler - all.data()),
                 static_cast<int64_t>(all.size()));
    const auto pixels = sample(event, sampler);
    const auto measures = measure(event, pixels);
    report.add(sampler.name + ".acc", measures.acc, sampler.bands.acc);
    report.add(sampler.name + ".clip", measures.clip, sampler.bands.clip);
    report.add(sampler.name + ".fd", measures.fd, sampler.bands.fd);
    report.add(sampler.name + ".mot", measures.mot, sampler.bands.mot);
    report.add(sampler.name + ".div", measures.div, sampler.bands.div);
    if (sampler.role == kTeacher) {
      accuracy_of_teacher = measures.acc;
    } else if (sampler.renoises && sampler.steps == options_.few_steps[0] &&
               event.models().has(kTeacher)) {
      report.add(sampler.name + ".acc_gain", measures.acc - accuracy_of_teacher, kGainBand);
    }
    if (is_distilled) {
      columns.push_back({sampler.heading, clip_set(pixels), 0});
    } else if (columns.empty()) {
      columns = {{"", clip_set(pixels), 0}, {"", clip_set(pixels), kClasses}};
    }
  }
  draw_samples(folder, columns);
  for (const auto& value : report.values()) {
    event.log(("digits." + value.name).c_str(), value.value, LB_LAST);
  }
  write_text(folder, "report.json", report.json());
  write_text(folder, "report.txt", report.table());
  lb::log(report.has_passed() ? LB_INFO : LB_WARN, kName,
          "report.json, report.txt, samples.png, samples.gif and loss.png are in '" + folder +
              "'\n" + report.table());
}

void DigitsReport::report_losses(Report& report, const std::string& folder) const {
  if (losses_.empty()) {
    return;
  }
  const auto count = std::min<size_t>(losses_.size(), static_cast<size_t>(options_.loss_steps));
  double sum = 0;
  for (size_t i = losses_.size() - count; i < losses_.size(); ++i) {
    sum += losses_[i];
  }
  // The losses of a distillation say nothing about the student.
  report.add("loss.last_" + std::to_string(count), sum / static_cast<double>(count),
             options_.few_steps.empty() ? kLossBand : "");
  draw_loss(folder);
}

// samples.png: a row for every digit with the frames of a clip in each column. samples.gif: the
// same clips, playing.
void DigitsReport::draw_samples(const std::string& folder,
                                const std::vector<Column>& columns) const {
  constexpr int kGap = 1;
  constexpr double kFramesPerSecond = 4;
  constexpr int kTextScale = 2;
  constexpr int kHeadingHeight = 24;
  const bool has_headings = !columns[0].heading.empty();
  const int scale = columns.size() > 2 ? 3 : 5;
  const auto frames = columns[0].clips.frames;
  std::vector<media::Image> strips;
  std::vector<std::vector<media::Image>> playing(static_cast<size_t>(frames));
  for (int64_t digit = 0; digit < kClasses; ++digit) {
    for (const auto& column : columns) {
      std::vector<media::Image> strip;
      for (int64_t frame = 0; frame < frames; ++frame) {
        strip.push_back(frame_image(column.clips, column.first + digit, frame));
        playing[static_cast<size_t>(frame)].push_back(strip.back());
      }
      strips.push_back(media::grid(strip, static_cast<int>(frames), kGap));
    }
  }
  const std::filesystem::path target = folder;
  const auto count = static_cast<int>(columns.size());
  const auto sheet = media::enlarge(media::grid(strips, count, kGap), scale);
  media::Image picture(sheet.width, sheet.height + (has_headings ? kHeadingHeight : 0));
  media::paste(picture, sheet, 0, picture.height - sheet.height);
  for (int i = 0; i < count; ++i) {
    const auto& heading = columns[static_cast<size_t>(i)].heading;
    const int middle = sheet.width * (2 * i + 1) / (2 * count);
    media::draw_text(picture, middle - media::text_width(heading.size(), kTextScale) / 2, kGap * 5,
                     heading, {255, 255, 255}, kTextScale);
  }
  media::write_png(target / "samples.png", picture);
  std::vector<media::Image> animation;
  const int in_a_row = has_headings ? count : 2 * count;
  for (const auto& tiles : playing) {
    animation.push_back(media::enlarge(media::grid(tiles, in_a_row, kGap), 5));
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
