// SPDX-License-Identifier: Apache-2.0
#include "quickstart/digit_table.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "quickstart/digits.hpp"

namespace quickstart {
namespace {

constexpr int64_t kPromptSize = kPromptTokens * kPromptWidth;

}  // namespace

std::vector<float> prompt_table() {
  constexpr uint64_t kSeed = 7;
  constexpr double kUnit = 0x1p-53;
  std::vector<float> table(static_cast<size_t>(kClasses * kPromptSize));
  // The transform of Box and Muller (1958) on pairs of hashes.
  for (size_t i = 0; i < table.size(); i += 2) {
    const auto first = splitmix64(splitmix64(kSeed) + i);
    const auto second = splitmix64(splitmix64(kSeed) + i + 1);
    const double u = (static_cast<double>(first >> 11) + 1) * kUnit;  // (0, 1]
    const double angle = 2 * std::numbers::pi * static_cast<double>(second >> 11) * kUnit;
    const double radius = std::sqrt(-2 * std::log(u));
    table[i] = static_cast<float>(radius * std::cos(angle));
    table[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
  return table;
}

void DigitTable::describe(lb::Batch& facts) {
  facts.set("context.tokens", kPromptTokens);
  facts.set("context.width", kPromptWidth);
}

void DigitTable::forward(const lb::Units&, const lb::Batch& in, lb::Batch& out) {
  const auto prompts = in.texts("prompt");
  if (prompts.empty()) {
    throw lb::Error(LB_INVALID_ARGUMENT, "no text 'prompt' to encode");
  }
  const auto count = static_cast<int64_t>(prompts.size());
  std::vector<float> context(prompts.size() * kPromptSize, 0.0F);
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (const auto label = label_of(prompts[i]); label >= 0) {
      std::copy_n(table_.begin() + label * kPromptSize, kPromptSize,
                  context.begin() + static_cast<int64_t>(i) * kPromptSize);
    }
  }
  out.set("context", lb::tensor(context, {count, kPromptTokens, kPromptWidth}));
  out.set("context_mask", lb::ones({count, kPromptTokens}));
}

}  // namespace quickstart
