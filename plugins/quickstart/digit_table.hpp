// SPDX-License-Identifier: Apache-2.0
// The text encoder "digit_table".
#pragma once

#include <vector>

#include <limbeck/network.hpp>

namespace quickstart {

// Numbers of a table of prompts, [classes, tokens, width], standard normal. They depend on nothing:
// every run, with any seed, sees the same text.
std::vector<float> prompt_table();

inline constexpr int64_t kPromptTokens = 4;
inline constexpr int64_t kPromptWidth = 32;

// Looks prompts up: "digit 0" to "digit 9" are rows of prompt_table(), the empty prompt is zeros,
// any other is an error.
//   prompt, b rows of text -> context [b, 4, 32], context_mask f32 [b, 4], all ones
class DigitTable : public lb::Network {
 public:
  static constexpr const char* kind = "limbeck.text-encoder/1";
  static constexpr const char* provides[] = {"limbeck.text-encoder/1"};

  explicit DigitTable(const lb::Builder&) : table_(prompt_table()) {}

  void describe(lb::Batch& facts) override;
  void forward(const lb::Units& units, const lb::Batch& in, lb::Batch& out) override;

 private:
  std::vector<float> table_;
};

}  // namespace quickstart
