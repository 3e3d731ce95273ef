// SPDX-License-Identifier: Apache-2.0
// A tracker: it gets the metrics and files of a run. A manifest uses it like this:
//
//   [training.tracker]
//   trackers = ["my_plugin"]
#include <fstream>

#include <limbeck/plugin.hpp>

namespace {

// Metrics as lines of step, name and value, in metrics.csv of the run's folder.
class MyTracker : public lb::Tracker {
 public:
  explicit MyTracker(const lb_tracked_run& run)
      : path_(std::string(run.directory) + "/metrics.csv"), file_(path_, std::ios::app) {
    if (!file_) {
      throw lb::Error(LB_PERMISSION_DENIED, "cannot write " + path_);
    }
  }

  void scalars(int64_t step, lb::List<const char*> names, lb::List<double> values) override {
    for (size_t i = 0; i < names.size(); ++i) {
      file_ << step << ',' << names[i] << ',' << values[i] << '\n';
    }
    if (!file_.flush()) {
      throw lb::Error(LB_DATA_LOSS, "cannot write " + path_);
    }
  }

 private:
  std::string path_;
  std::ofstream file_;
};

}  // namespace

LB_PLUGIN(lb::tracker<MyTracker>("my_plugin", "Metrics as comma-separated lines."))
