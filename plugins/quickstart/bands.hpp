// SPDX-License-Identifier: Apache-2.0
// Where the quickstart's numbers must be for a correct trainer: well outside the range of three
// seeds of a reference implementation, well inside what a broken one reaches.
#pragma once

namespace quickstart {

inline constexpr const char* kJudgeBand = ">= 0.955";

struct SamplerBands {
  const char* acc = "";
  const char* clip = "";
  const char* fd = "";
  const char* mot = "";
  const char* div = "";
};
inline constexpr const char* kLossBand = "<= 0.28";
inline constexpr SamplerBands kGuidedBands{">= 0.85", ">= 0.92", "<= 15", ">= 0.81", ""};
// An upper bound: if four plain steps were good already, there would be nothing to distil.
inline constexpr SamplerBands kNaiveBands{"<= 0.82", "", "", "", ""};
// A distilled student with the steps it was trained for, and by how much it beats the teacher with
// as many.
inline constexpr SamplerBands kDistilledBands{">= 0.93", ">= 0.96", "<= 45", ">= 0.86", ">= 16"};
inline constexpr const char* kGainBand = ">= 0.12";

}  // namespace quickstart
