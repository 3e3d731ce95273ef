// SPDX-License-Identifier: Apache-2.0
// What a person sees while a run trains: one live line on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "core/base/profile.hpp"

namespace limbeck {

class Progress {
 public:
  Progress(int64_t max_steps, int64_t log_every_steps);
  ~Progress();  // removes the live line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // After step `step` with its metrics and the samples it trained on.
  void show(int64_t step, const std::map<std::string, double>& metrics, int64_t samples);
  // Time that is not training (validation, reports) does not count as steps' time.
  void resume();

 private:
  using Clock = std::chrono::steady_clock;

  int64_t max_steps_;
  int64_t log_every_steps_;
  Clock::time_point last_;
  double seconds_per_step_ = 0;  // moving average
  double samples_per_step_ = 0;
  int64_t shown_ = 0;
};

// "step 120/1200  loss 0.3012  lr 3.0e-03  grad 0.82  281 samples/s  eta 0:45". Of metrics with a
// role in their name ("lr/x") the roles are named when there are several.
std::string progress_text(int64_t step,
                          int64_t max_steps,
                          const std::map<std::string, double>& metrics,
                          double samples_per_second,
                          double seconds_left);

// Where the time of a run went: "90.0 s: data 1 %, forward 40 %, backward 45 %, optimizer 6 %,
// other parts of steps 5 %, between steps 3 %". `total` and `steps` in seconds.
std::string time_text(double total, double steps, const profile::Seconds& parts);

}  // namespace limbeck
