// SPDX-License-Identifier: Apache-2.0
// The callback "step_cpu": CPU seconds of the steps, for comparisons on machines that are not idle.
#include <ctime>

#include <limbeck/plugin.hpp>

namespace {

// Of all threads of the process.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Logs `step_cpu_sec`: from the begin of a step to the end of its last round, so with data, hooks
// and optimizer and without trackers.
class StepCpu final : public lb::Callback {
 public:
  static constexpr uint64_t events = LB_BIT(LB_ON_STEP_BEGIN) | LB_BIT(LB_ON_ROUND);

  void event(const lb::Event& event) override {
    if (event.kind() == LB_ON_STEP_BEGIN) {
      begin_ = cpu_seconds();
    } else {
      event.log("step_cpu_sec", cpu_seconds() - begin_, LB_LAST);
    }
  }

 private:
  double begin_ = 0;
};

}  // namespace

LB_PLUGIN(lb::callback<StepCpu>("step_cpu", "Logs the CPU seconds of every step."))
