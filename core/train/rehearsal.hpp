// SPDX-License-Identifier: Apache-2.0
// One training step without numbers: on the meta device, where tensors have shapes and no contents.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/error.hpp"
#include "core/manifest/manifest.hpp"
#include "core/plugin/child_process.hpp"

namespace limbeck {

// Whether an error of libtorch says that an operator has no shapes without contents, or that
// contents were read which the meta device does not have. Errors of other origin that merely speak
// of something "meta" are none of these.
bool needs_contents(const std::string& text);

// A child process that creates the run of a manifest once more and rehearses its first step. It has
// its own process so that a network may be larger than the machine, and that a component which
// cannot work without contents, or remembers tensors that have none, does no harm here.
class Rehearsal {
 public:
  struct Result {
    // The most bytes that tensors of the step had at once, beside weights, gradients, moments and
    // averages. Empty: not known.
    std::optional<int64_t> bytes;
    // What the C library's heap then kept beside tensors, roles' buffers included: between blocks
    // in use, for sizes that do not fit there.
    int64_t heap = 0;
    std::string unknown;         // why `bytes` is not known
    std::optional<Error> fault;  // the step cannot work: a shape does not fit
  };

  // Starts it. The process must have no threads yet that the child would need: before data and
  // components are created. `manifest` must outlive it. [control]
  explicit Rehearsal(const Manifest& manifest);

  // Waits for the result; once. [control]
  Result finish();

 private:
  ChildProcess child_;
};

}  // namespace limbeck
