// SPDX-License-Identifier: Apache-2.0
#include "core/train/progress.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/base/log.hpp"
#include "core/base/text.hpp"

namespace limbeck {
namespace {

constexpr double kSmoothing = 0.9;

std::string format(const char* pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), pattern, value);
  return text;
}

std::string duration(double seconds) {
  const auto total = static_cast<int64_t>(std::llround(seconds));
  char text[64];
  if (total >= 3600) {
    std::snprintf(text, sizeof(text), "%lld:%02lld:%02lld", static_cast<long long>(total / 3600),
                  static_cast<long long>(total / 60 % 60), static_cast<long long>(total % 60));
  } else {
    std::snprintf(text, sizeof(text), "%lld:%02lld", static_cast<long long>(total / 60),
                  static_cast<long long>(total % 60));
  }
  return text;
}

// "  lr 3.0e-03" for one entry "lr/x", "  lr x 3.0e-03 y 1.0e-04" for several.
std::string by_role(const std::map<std::string, double>& metrics,
                    const std::string& prefix,
                    const char* label,
                    const char* pattern) {
  std::vector<std::pair<std::string, double>> found;
  for (auto entry = metrics.lower_bound(prefix);
       entry != metrics.end() && entry->first.starts_with(prefix); ++entry) {
    found.emplace_back(entry->first.substr(prefix.size()), entry->second);
  }
  std::string text;
  for (const auto& [role, value] : found) {
    text += (found.size() > 1 ? " " + role + " " : " ") + format(pattern, value);
  }
  return text.empty() ? "" : cat("  ", label, text);
}

}  // namespace

std::string progress_text(int64_t step,
                          int64_t max_steps,
                          const std::map<std::string, double>& metrics,
                          double samples_per_second,
                          double seconds_left) {
  std::string text = cat("step ", step, "/", max_steps);
  if (const auto loss = metrics.find("loss"); loss != metrics.end()) {
    text += "  loss " + format("%.4f", loss->second);
  }
  text += by_role(metrics, "lr/", "lr", "%.1e");
  text += by_role(metrics, "grad_norm/", "grad", "%.2f");
  if (samples_per_second > 0) {
    text +=
        "  " + format(samples_per_second < 10 ? "%.2f" : "%.0f", samples_per_second) + " samples/s";
  }
  return text + "  eta " + duration(seconds_left);
}

std::string time_text(double total, double steps, const profile::Seconds& parts) {
  constexpr const char* kNames[profile::kParts] = {"data", "forward", "backward", "optimizer"};
  const auto share = [&](double seconds) {
    return " " + format("%.0f", 100 * std::max(0.0, seconds) / total) + " %, ";
  };
  double in_parts = 0;
  std::string text = format("%.1f", total) + " s: ";
  for (size_t i = 0; i < profile::kParts; ++i) {
    text += kNames[i] + share(parts[i]);
    in_parts += parts[i];
  }
  text += "other parts of steps" + share(steps - in_parts);
  text += "between steps" + share(total - steps);
  return text.substr(0, text.size() - 2);
}

Progress::Progress(int64_t max_steps, int64_t log_every_steps)
    : max_steps_(max_steps), log_every_steps_(log_every_steps), last_(Clock::now()) {}

Progress::~Progress() { log::status_line(""); }

void Progress::resume() { last_ = Clock::now(); }

void Progress::show(int64_t step, const std::map<std::string, double>& metrics, int64_t samples) {
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - last_).count();
  last_ = now;
  // The first step is not like the others: memory is touched for the first time.
  const double keep = shown_ < 2 ? 0.0 : kSmoothing;
  seconds_per_step_ = keep * seconds_per_step_ + (1 - keep) * seconds;
  samples_per_step_ = keep * samples_per_step_ + (1 - keep) * static_cast<double>(samples);
  ++shown_;
  const double rate = seconds_per_step_ > 0 ? samples_per_step_ / seconds_per_step_ : 0;
  const double left = seconds_per_step_ * static_cast<double>(max_steps_ - step);
  const auto text = progress_text(step, max_steps_, metrics, rate, left);
  if (log::is_terminal()) {
    log::status_line(text);
  } else if (step == 1 || step == max_steps_ ||
             (log_every_steps_ > 0 && step % log_every_steps_ == 0)) {
    log::info("train", text);
  }
}

}  // namespace limbeck
