// SPDX-License-Identifier: Apache-2.0
// How much memory a command needed over what the program has anyway.
#pragma once

#include <cstdint>
#include <string>

namespace limbeck::host {

// Begins when it is made. Resident memory of the process, pages of mapped files included.
class MemoryPeak {
 public:
  MemoryPeak();
  // "peak 31.20 MB, 12.10 MB more than at the beginning"; without numbers where the system does not
  // tell them.
  std::string text() const;

 private:
  uint64_t begin_ = 0;  // bytes; 0: not known
};

}  // namespace limbeck::host
