// SPDX-License-Identifier: Apache-2.0
// The edge between C++ exceptions and statuses for functions that use libtorch.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include <limbeck/abi.h>

#include "core/base/error.hpp"
#include "core/plugin/status.hpp"

namespace limbeck {

// The text of a libtorch error without its backtrace, and the code it stands for: running out of
// memory, or an argument that an operator refused.
inline lb_status* to_status(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  if (text.find("DefaultCPUAllocator") != std::string::npos) {
    return make_status(LB_HOST_OOM, text);
  }
  return make_status(LB_INVALID_ARGUMENT, text);
}

// Runs `work`; an exception becomes a status. For every host function that a plugin may call.
template <class Work>
lb_status* guarded(Work&& work) noexcept {
  try {
    std::forward<Work>(work)();
    return nullptr;
  } catch (const Error& error) {
    return to_status(error);
  } catch (const c10::OutOfMemoryError& error) {
    return make_status(LB_DEVICE_OOM, error.what_without_backtrace());
  } catch (const c10::Error& error) {
    return to_status(error);
  } catch (const std::bad_alloc&) {
    return make_status(LB_HOST_OOM, "out of memory");
  } catch (const std::exception& error) {
    return make_status(LB_INTERNAL, error.what());
  } catch (...) {
    return make_status(LB_UNKNOWN, "an exception of unknown type");
  }
}

}  // namespace limbeck
