// SPDX-License-Identifier: Apache-2.0
// The one exception type of core and host. At the C boundary it becomes an lb_status and back
// (plugin/status.hpp); only host/main.cpp turns it into output and an exit code.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/export.hpp"

namespace limbeck {

// What went wrong, as far as a caller or an exit code cares.
enum class Fault {
  kUsage,        // the command line                                              exit 64
  kManifest,     // the manifest: keys, types, ranges, rules between components    exit 2
  kPlugin,       // a plugin that cannot be loaded, or broke the contract          exit 3
  kData,         // data sets, weights, files                                      exit 4
  kNumeric,      // a loss or gradient is not finite                               exit 5
  kDistributed,  // another rank, the network                                      exit 6
  kMemory,       // host or device memory is exhausted                             exit 7
  kCancelled,    // the user asked to stop                                         exit 130
  kInternal,     // a bug of ours                                                  exit 70
};

LIMBECK_API int exit_code(Fault fault);

// what() is the complete text for a person: message, then one indented line for every frame
// ("while ...") and for the hint.
class LIMBECK_API Error : public std::runtime_error {
 public:
  // `message` says what is wrong with what was got and what was expected; `hint` says what to do.
  Error(Fault fault, std::string message, std::string hint = "");

  Fault fault() const { return fault_; }
  const std::string& message() const { return message_; }
  const std::string& hint() const { return hint_; }
  const std::vector<std::string>& frames() const { return frames_; }

  // A copy with one more frame, outermost last: "while loading the weights of role 'x'".
  Error with(std::string frame) const;

 private:
  Error(Fault fault, std::string message, std::string hint, std::vector<std::string> frames);

  Fault fault_;
  std::string message_;
  std::string hint_;
  std::vector<std::string> frames_;
};

}  // namespace limbeck
