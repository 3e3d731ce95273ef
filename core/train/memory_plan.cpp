// SPDX-License-Identifier: Apache-2.0
#include "core/train/memory_plan.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "core/base/text.hpp"
#include "core/tensor/handle.hpp"

namespace limbeck {
namespace {

// Code of operators that is paged in (13 to 20 MiB were measured), work spaces of matrix products,
// stacks: an estimate, which the comparison of plan and peak (tests/e2e/check_test.cpp,
// --dry-run=step) includes.
constexpr int64_t kKernels = int64_t{24} << 20;

// A line of /proc/self/status, "VmHWM:   123456 kB".
int64_t status_bytes(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) {
      return std::strtoll(line.c_str() + name.size() + 1, nullptr, 10) * 1024;
    }
  }
  return 0;
}

int64_t bytes_of(const lb_batch& batch) {
  int64_t bytes = 0;
  for (const auto& [name, entry] : batch.entries) {
    if (const auto* tensor = std::get_if<at::Tensor>(&entry)) {
      bytes += static_cast<int64_t>(tensor->nbytes());
    }
  }
  return bytes;
}

// "1.3 GiB"
std::string size_text(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text.data();
}

using Row = std::vector<std::string>;

std::string to_text(const std::vector<Row>& rows) {
  std::vector<size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line = "  " + row[0] + std::string(widths[0] - row[0].size(), ' ');
    for (size_t i = 1; i < row.size(); ++i) {
      line += "  " + std::string(widths[i] - row[i].size(), ' ') + row[i];
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace

RoleMemory memory_of(const Role& role) {
  const auto& layout = role.layout();
  const int64_t wide = role.storage_type() == at::kDouble ? 8 : 4;  // of master weights
  const auto stored = static_cast<int64_t>(c10::elementSize(role.storage_type()));
  RoleMemory memory;
  memory.name = role.name();
  memory.parameters = layout.parameter_count();
  memory.weights =
      layout.trained_size * wide + layout.frozen_size * stored + layout.frozen_wide_size * 4;
  for (const auto& param : layout.params) {
    if (param.store == Store::kBuffer) {
      memory.weights +=
          param.numel * static_cast<int64_t>(c10::elementSize(scalar_type(param.dtype)));
    }
  }
  if (role.is_trained()) {
    memory.gradients = layout.trained_size * wide;
    memory.optimizer = 2 * layout.trained_size * wide;
  }
  if (role.has_average()) {
    memory.average = layout.trained_size * wide;
  }
  return memory;
}

int64_t MemoryPlan::total() const {
  int64_t bytes = activations.value_or(0) + heap + batches + libraries + kernels;
  for (const auto& role : roles) {
    bytes += role.bytes();
  }
  return bytes;
}

MemoryPlan plan_roles(const Manifest& manifest, std::string unknown) {
  MemoryPlan plan;
  for (const auto& spec : manifest.roles) {
    plan.roles.push_back(memory_of(Role(spec, Mesh{})));
  }
  plan.unknown = std::move(unknown);
  plan.libraries = resident_bytes();
  plan.kernels = kKernels;
  return plan;
}

MemoryPlan plan_memory(Run& run, Rehearsal& rehearsal) {
  MemoryPlan plan;
  for (const auto& role : run.roles) {
    plan.roles.push_back(memory_of(*role));
  }
  int64_t batch = 0;
  if (run.loader != nullptr) {
    batch = bytes_of(*run.loader->next());
    plan.batches = batch * run.loader->batches_ahead();
  }
  auto result = rehearsal.finish();
  if (result.fault.has_value()) {
    throw Error(*result.fault);
  }
  plan.activations = result.bytes;
  plan.heap = result.heap;
  plan.unknown = result.unknown;
  plan.libraries = std::max<int64_t>(0, resident_bytes() - batch);
  plan.kernels = kKernels;
  return plan;
}

std::string to_table(const MemoryPlan& plan, int64_t peak) {
  std::vector<Row> rows = {
      {"ROLE", "PARAMETERS", "WEIGHTS", "GRADIENTS", "OPTIMIZER", "AVERAGE", "TOTAL"}};
  const auto size = [](int64_t bytes) { return bytes == 0 ? std::string("-") : size_text(bytes); };
  for (const auto& role : plan.roles) {
    rows.push_back({role.name, std::to_string(role.parameters), size(role.weights),
                    size(role.gradients), size(role.optimizer), size(role.average),
                    size(role.bytes())});
  }
  const auto add = [&rows](const std::string& what, const std::string& value) {
    rows.push_back({what, "", "", "", "", "", value});
  };
  add("activations of a step",
      plan.activations.has_value() ? size_text(*plan.activations) : "not known");
  add("kept between blocks in use", size(plan.heap));
  add("batches read ahead", size(plan.batches));
  add("libraries and data set", size(plan.libraries));
  add("kernels", size(plan.kernels));
  add("total", (plan.activations.has_value() ? "" : "more than ") + size_text(plan.total()));
  if (peak > 0) {
    std::array<char, 32> ratio{};
    std::snprintf(ratio.data(), ratio.size(), "%+.1f %%",
                  100.0 * (static_cast<double>(plan.total()) / static_cast<double>(peak) - 1.0));
    add(cat("measured peak (plan ", ratio.data(), ")"), size_text(peak));
  }
  std::string text = "memory of one process\n" + to_text(rows);
  if (!plan.activations.has_value()) {
    text += "  activations are not known: " + plan.unknown + "\n";
  }
  return text;
}

int64_t peak_resident_bytes() { return status_bytes("VmHWM"); }

int64_t resident_bytes() { return status_bytes("VmRSS"); }

}  // namespace limbeck
