// SPDX-License-Identifier: Apache-2.0
#include "core/track/metrics.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/tensor/guard.hpp"
#include "core/tensor/handle.hpp"

namespace limbeck {
namespace {

Metrics& of(lb_metrics* table) { return *static_cast<Metrics*>(table->ctx); }

// A report cannot fail towards the plugin; what is wrong with it is said once per call.
template <class Report>
void reported(const char* name, Report report) noexcept {
  if (auto* status = guarded(report)) {
    const auto error = to_error(status);
    log::warn("metrics", cat("'", name, "' was not recorded: ", error.what()));
  }
}

void metrics_scalar(lb_metrics* table, const char* name, double value, lb_reduce how) noexcept {
  reported(name, [&] { of(table).add(name, value, how); });
}
void metrics_tensor(lb_metrics* table,
                    const char* name,
                    lb_tensor* scalar,
                    lb_reduce how) noexcept {
  reported(name, [&] { of(table).add(name, tensor_of(scalar), how); });
}
void metrics_file(lb_metrics* table,
                  const char* name,
                  const char* media_type,
                  const char* path,
                  const char* caption) noexcept {
  reported(name, [&] {
    of(table).add(ReportedFile{name, media_type, path, caption != nullptr ? caption : ""});
  });
}

double reduce(lb_reduce how, const double* values, size_t count) {
  switch (how) {
    case LB_SUM:
      return std::accumulate(values, values + count, 0.0);
    case LB_MAX:
      return *std::max_element(values, values + count);
    case LB_LAST:
      return values[count - 1];
    default:
      return std::accumulate(values, values + count, 0.0) / static_cast<double>(count);
  }
}

}  // namespace

Metrics::Metrics()
    : table_{sizeof(lb_metrics), 0, this, metrics_scalar, metrics_tensor, metrics_file} {}

void Metrics::add(const std::string& name, double value, lb_reduce how) {
  add(name, at::scalar_tensor(value, at::kDouble), how);
}

void Metrics::add(const std::string& name, const at::Tensor& value, lb_reduce how) {
  TORCH_CHECK(value.numel() == 1, "a metric is one number, got a tensor of shape ", value.sizes());
  auto& series = series_[name];
  series.how = how;
  series.values.push_back(value.detach().reshape({}));
}

void Metrics::add(ReportedFile file) { files_.push_back(std::move(file)); }

std::map<std::string, double> Metrics::take_numbers() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> all;
  for (const auto& [name, series] : series_) {
    for (const auto& value : series.values) {
      all.push_back(value.to(at::kDouble));
    }
  }
  std::map<std::string, double> numbers;
  if (!all.empty()) {
    const auto values = at::stack(all).cpu();
    const auto* next = values.const_data_ptr<double>();
    for (const auto& [name, series] : series_) {
      numbers[name] = reduce(series.how, next, series.values.size());
      next += series.values.size();
    }
  }
  series_.clear();
  return numbers;
}

std::vector<ReportedFile> Metrics::take_files() { return std::exchange(files_, {}); }

}  // namespace limbeck
