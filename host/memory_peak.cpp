// SPDX-License-Identifier: Apache-2.0
#include "host/memory_peak.hpp"

#include <algorithm>
#include <fstream>
#include <string_view>

#include "core/base/text.hpp"
#include "host/inspect.hpp"

namespace limbeck::host {
namespace {

// "VmHWM": the most there was, "VmRSS": what there is; in bytes, 0 if not told.
uint64_t status_of_process(std::string_view field) {
  std::ifstream status("/proc/self/status");
  std::string name;
  for (uint64_t kilobytes = 0; status >> name;) {
    if (name.size() == field.size() + 1 && name.starts_with(field)) {
      status >> kilobytes;
      return kilobytes * 1024;
    }
    std::getline(status, name);
  }
  return 0;
}

}  // namespace

MemoryPeak::MemoryPeak() {
  // 5: forget the most there was until now.
  std::ofstream("/proc/self/clear_refs") << "5";
  begin_ = status_of_process("VmRSS");
}

std::string MemoryPeak::text() const {
  const auto most = status_of_process("VmHWM");
  if (begin_ == 0 || most == 0) {
    return "not told by this system";
  }
  return cat("peak ", bytes_text(most), ", ", bytes_text(most - std::min(most, begin_)),
             " more than at the beginning");
}

}  // namespace limbeck::host
