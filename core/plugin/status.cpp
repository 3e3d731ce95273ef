// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/status.hpp"

#include <exception>
#include <new>

namespace limbeck {
namespace {

// Shared and never changed or deleted; its strings are short enough to need no heap.
lb_status* out_of_memory() noexcept {
  static lb_status status{LB_HOST_OOM, "out of memory", {}, Fault::kMemory, ""};
  return &status;
}

}  // namespace

lb_status* make_status(lb_code code, std::string message) noexcept {
  try {
    return new lb_status{code, std::move(message), {}, std::nullopt, ""};
  } catch (...) {
    return out_of_memory();
  }
}

lb_status* to_status(const Error& error) noexcept {
  try {
    return new lb_status{code_of(error.fault()), error.message(), error.frames(), error.fault(),
                         error.hint()};
  } catch (...) {
    return out_of_memory();
  }
}

lb_status* status_of_current_exception() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return to_status(error);
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::exception& error) {
    try {
      return make_status(LB_INTERNAL, error.what());
    } catch (...) {
      return out_of_memory();
    }
  } catch (...) {
    try {
      return make_status(LB_INTERNAL, "an exception that is not a std::exception");
    } catch (...) {
      return out_of_memory();
    }
  }
}

lb_status* status_of_escaped_exception() noexcept {
  lb_status* status = status_of_current_exception();
  if (status == out_of_memory()) {
    return status;
  }
  status->code = LB_INTERNAL;
  status->fault = Fault::kPlugin;
  status->hint = "a plugin's function must catch what it throws and return a status";
  return add_frame(status, "an exception left the plugin, which the ABI forbids");
}

lb_status* add_frame(lb_status* status, std::string frame) noexcept {
  if (status == nullptr || status == out_of_memory()) {
    return status;
  }
  try {
    status->frames.push_back(std::move(frame));
  } catch (...) {
    // The error itself matters more than where it was.
  }
  return status;
}

void drop_status(lb_status* status) noexcept {
  if (status != out_of_memory()) {
    delete status;
  }
}

Fault fault_of(lb_code code) {
  switch (code) {
    case LB_CANCELLED:
      return Fault::kCancelled;
    case LB_INVALID_ARGUMENT:
      return Fault::kManifest;
    case LB_NOT_FOUND:
    case LB_PERMISSION_DENIED:
    case LB_OUT_OF_RANGE:
    case LB_UNAVAILABLE:
    case LB_DATA_LOSS:
      return Fault::kData;
    case LB_HOST_OOM:
    case LB_DEVICE_OOM:
      return Fault::kMemory;
    case LB_NONFINITE:
      return Fault::kNumeric;
    default:
      return Fault::kPlugin;
  }
}

lb_code code_of(Fault fault) {
  switch (fault) {
    case Fault::kUsage:
    case Fault::kManifest:
      return LB_INVALID_ARGUMENT;
    case Fault::kPlugin:
      return LB_FAILED_PRECONDITION;
    case Fault::kData:
      // Not LB_UNAVAILABLE, which save() returns to be asked again later.
      return LB_DATA_LOSS;
    case Fault::kNumeric:
      return LB_NONFINITE;
    case Fault::kDistributed:
      return LB_UNKNOWN;
    case Fault::kMemory:
      return LB_HOST_OOM;
    case Fault::kCancelled:
      return LB_CANCELLED;
    case Fault::kInternal:
      return LB_INTERNAL;
  }
  return LB_INTERNAL;
}

Error to_error(lb_status* status) {
  // Copies, for the static status is shared.
  Error error(status->fault.value_or(fault_of(status->code)), status->message, status->hint);
  for (const auto& frame : status->frames) {
    error = error.with(frame);
  }
  drop_status(status);
  return error;
}

void check(lb_status* status, std::string frame) {
  if (status == nullptr) {
    return;
  }
  const Error error = to_error(status);
  throw frame.empty() ? error : error.with(std::move(frame));
}

}  // namespace limbeck
