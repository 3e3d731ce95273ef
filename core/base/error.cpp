// SPDX-License-Identifier: Apache-2.0
#include "core/base/error.hpp"

#include <utility>

namespace limbeck {
namespace {

std::string render(const std::string& message,
                   const std::string& hint,
                   const std::vector<std::string>& frames) {
  std::string text = message;
  for (const auto& frame : frames) {
    text += "\n  " + frame;
  }
  if (!hint.empty()) {
    text += "\n  hint: " + hint;
  }
  return text;
}

}  // namespace

int exit_code(Fault fault) {
  switch (fault) {
    case Fault::kUsage:
      return 64;
    case Fault::kManifest:
      return 2;
    case Fault::kPlugin:
      return 3;
    case Fault::kData:
      return 4;
    case Fault::kNumeric:
      return 5;
    case Fault::kDistributed:
      return 6;
    case Fault::kMemory:
      return 7;
    case Fault::kCancelled:
      return 130;
    case Fault::kInternal:
      return 70;
  }
  return 70;
}

Error::Error(Fault fault, std::string message, std::string hint)
    : Error(fault, std::move(message), std::move(hint), {}) {}

Error::Error(Fault fault, std::string message, std::string hint, std::vector<std::string> frames)
    : std::runtime_error(render(message, hint, frames)),
      fault_(fault),
      message_(std::move(message)),
      hint_(std::move(hint)),
      frames_(std::move(frames)) {}

Error Error::with(std::string frame) const {
  auto frames = frames_;
  frames.push_back(std::move(frame));
  return Error(fault_, message_, hint_, std::move(frames));
}

}  // namespace limbeck
