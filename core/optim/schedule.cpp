// SPDX-License-Identifier: Apache-2.0
#include "core/optim/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <sstream>
#include <string>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace limbeck {
namespace {

constexpr double kPolynomialEnd = 1e-7;

double cosine(double p) { return std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * p))); }

[[noreturn]] void refuse_rules(const std::string& rules) {
  throw Error(Fault::kManifest, cat("step_rules = \"", rules, "\" cannot be read"),
              "write multiplier:step pairs and a last multiplier: \"1:100,0.1:200,0.01\"");
}

double number(const std::string& text, const std::string& rules) {
  size_t used = 0;
  double value = 0;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    refuse_rules(rules);
  }
  if (used != text.size()) {
    refuse_rules(rules);
  }
  return value;
}

// Thresholds are absolute update numbers; of equal ones the last counts.
double piecewise(const std::string& rules, int64_t n) {
  std::istringstream list(rules);
  std::optional<double> last;
  double best_threshold = std::numeric_limits<double>::infinity();
  std::optional<double> best;
  for (std::string item; std::getline(list, item, ',');) {
    const auto colon = item.find(':');
    if (last.has_value()) {
      refuse_rules(rules);  // something follows the last multiplier
    }
    if (colon == std::string::npos) {
      last = number(item, rules);
      continue;
    }
    const double multiplier = number(item.substr(0, colon), rules);
    const double threshold = number(item.substr(colon + 1), rules);
    if (static_cast<double>(n) < threshold && threshold <= best_threshold) {
      best_threshold = threshold;
      best = multiplier;
    }
  }
  if (!last.has_value()) {
    refuse_rules(rules);
  }
  return best.value_or(*last);
}

}  // namespace

double lr_multiplier(const OptimizerSpec& spec, int64_t n, int64_t horizon) {
  const auto& name = spec.lr_scheduler;
  if (name == "constant") {
    return 1.0;
  }
  if (name == "piecewise_constant") {
    return piecewise(spec.step_rules, n);
  }
  const int64_t w = spec.lr_warmup_steps;
  if (n < w) {
    return static_cast<double>(n) / static_cast<double>(w);
  }
  const double p = std::min(
      1.0, static_cast<double>(n - w) / static_cast<double>(std::max<int64_t>(1, horizon - w)));
  if (name == "constant_with_warmup") {
    return 1.0;
  }
  if (name == "linear") {
    return 1.0 - p;
  }
  if (name == "cosine") {
    return cosine(p);
  }
  if (name == "cosine_with_min_lr") {
    return std::max(spec.min_lr_ratio, cosine(p));
  }
  if (name == "cosine_with_restarts") {
    return p >= 1.0 ? 0.0 : cosine(std::fmod(static_cast<double>(spec.lr_num_cycles) * p, 1.0));
  }
  if (name == "polynomial") {
    const double lr = spec.learning_rate;
    return ((lr - kPolynomialEnd) * std::pow(1.0 - p, spec.lr_power) + kPolynomialEnd) / lr;
  }
  throw Error(Fault::kManifest, cat("there is no learning-rate schedule '", name, "'"));
}

}  // namespace limbeck
