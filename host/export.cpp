// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <map>

#include "core/base/text.hpp"
#include "core/transfer/export_role.hpp"
#include "host/commands.hpp"
#include "host/inspect.hpp"
#include "host/memory_peak.hpp"
#include "host/transfer.hpp"

namespace limbeck::host {
namespace {

void print_report(const ExportRequest& request, const ExportReport& report) {
  const auto step = cat("step ", report.step, " of role ", request.role,
                        request.is_averaged ? ", averaged weights" : "");
  std::cout << request.output.string() << ": " << step << ", from " << report.checkpoint.string()
            << '\n';
  if (!report.absent_base.empty()) {
    std::cout << "  no base: " << report.absent_base.string()
              << ", which the role was loaded from, is not there; --base names another\n";
  } else if (report.base.empty()) {
    std::cout << "  no base: the other components of a pipeline are not part of this folder\n";
  } else {
    std::cout << "  base: " << report.base.string() << '\n';
  }
  if (report.copy.linked + report.copy.copied > 0) {
    std::cout << "  taken over: " << report.copy.linked << " files linked, " << report.copy.copied
              << " copied (" << bytes_text(report.copy.copied_bytes) << ")\n";
    for (const auto& name : report.copy.left_out) {
      std::cout << "  left out: " << name << ", weights that are replaced\n";
    }
  }
  for (const auto& part : report.parts) {
    std::cout << "  " << (part.name.empty() ? "weights" : part.name) << ": " << part.tensors
              << " tensors, " << count_text(part.numbers) << " numbers, " << bytes_text(part.bytes)
              << '\n';
  }
  print_written(report.files);
  if (request.verifies) {
    std::cout << "  verified: every tensor was read again and has the bits of the checkpoint\n";
  }
}

}  // namespace

const WeightType* type_of(const std::string& dtype) {
  static const std::map<std::string, const char*> names = {
      {"fp32", "F32"}, {"bf16", "BF16"}, {"fp16", "F16"}};
  return dtype.empty() ? nullptr : find_weight_type(names.at(dtype));
}

void print_written(const std::vector<WrittenFile>& files) {
  for (const auto& file : files) {
    std::cout << "  file: " << file.path.string() << ", " << bytes_text(file.bytes) << ", xxh3 "
              << digest_text(file.xxh3) << '\n';
  }
}

void export_weights(const Options& options) {
  ExportRequest request;
  request.checkpoint = options.paths.front();
  request.role = options.role;
  request.is_averaged = options.is_averaged;
  request.output = options.output;
  request.type = type_of(options.dtype);
  request.base = options.base;
  request.overwrites = options.overwrites;
  request.merges = options.merges;
  request.verifies = options.verifies;
  const MemoryPeak memory;
  const auto report = export_role(request);
  print_report(request, report);
  std::cout << "  memory: " << memory.text() << '\n';
}

}  // namespace limbeck::host
