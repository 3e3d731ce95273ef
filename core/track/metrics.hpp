// SPDX-License-Identifier: Apache-2.0
// The numbers and files that components report during a step.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <limbeck/abi.h>

#include "core/track/reported_file.hpp"

namespace limbeck {

// Accumulates without synchronising; take_numbers() reads all device values in one copy. [control]
class Metrics {
 public:
  Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  lb_metrics& table() { return table_; }

  // A name that is reported several times is reduced as the last report says.
  void add(const std::string& name, double value, lb_reduce how);
  void add(const std::string& name, const at::Tensor& value, lb_reduce how);
  void add(ReportedFile file);

  // What was reported since the last call, reduced; both start empty again.
  std::map<std::string, double> take_numbers();
  std::vector<ReportedFile> take_files();

 private:
  struct Series {
    lb_reduce how = LB_MEAN;
    std::vector<at::Tensor> values;  // fp64 scalars, or fp32 ones of the device
  };

  lb_metrics table_;
  std::map<std::string, Series> series_;
  std::vector<ReportedFile> files_;
};

}  // namespace limbeck
