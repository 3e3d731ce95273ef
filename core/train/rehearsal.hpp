// SPDX-License-Identifier: Apache-2.0
// One training step without numbers: on the meta device, where tensors have shapes and no contents.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/error.hpp"
#include "core/manifest/manifest.hpp"

namespace limbeck {

// A child process that creates the run of a manifest once more and rehearses its first step. It has
// its own process so that a network may be larger than the machine, and that a component which
// cannot work without contents, or remembers tensors that have none, does no harm here.
class Rehearsal {
 public:
  struct Result {
    // The most bytes that tensors of the step had at once, beside weights, gradients, moments and
    // averages. Empty: not known.
    std::optional<int64_t> bytes;
    std::string unknown;         // why
    std::optional<Error> fault;  // the step cannot work: a shape does not fit
  };

  // Starts it. The process must have no threads yet that the child would need: before data and
  // components are created. `manifest` must outlive it. [control]
  explicit Rehearsal(const Manifest& manifest);
  ~Rehearsal();  // ends it if it was not waited for
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;

  // Waits for the result; once. [control]
  Result finish();

 private:
  int pid_ = -1;
  int output_ = -1;  // read end of a pipe
};

}  // namespace limbeck
