// SPDX-License-Identifier: Apache-2.0
// The host as seen by a plugin: its services, errors and log lines.
//
// The whole SDK is header-only, needs no library beside the C++ runtime and has hidden visibility,
// so that two plugins built with different versions of it never share a symbol.
#pragma once

#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include <limbeck/abi.h>

// Of the SDK's namespaces: what a plugin compiles in stays its own.
#define LB_HIDDEN __attribute__((visibility("hidden")))

namespace lb {
inline namespace v1 LB_HIDDEN {

// Tables of the host. Set once by bind(), before any other call of the SDK, and constant after.
struct Services {
  const lb_host* host = nullptr;
  const lb_tensor_api* tensor = nullptr;
  const lb_dispatch_api* dispatch = nullptr;
  const lb_batch_api* batch = nullptr;
  const lb_config_api* config = nullptr;
  const lb_random_api* random = nullptr;
  const lb_group_api* group = nullptr;
};
inline Services services;

// What a plugin throws for a fault it found: what is wrong, what was got, what was expected. It
// never crosses the boundary: guard() turns it into a status.
struct Error : std::runtime_error {
  lb_code code;
  const char* file;  // where it was thrown
  int32_t line;

  // The place is the caller's. Not std::source_location, which clang has from version 15 on.
  Error(lb_code error_code,
        const std::string& message,
        const char* thrown_in = __builtin_FILE(),
        int32_t thrown_at = __builtin_LINE())
      : std::runtime_error(message), code(error_code), file(thrown_in), line(thrown_at) {}
};

// A failure of a host function on its way through C++ frames. Keeps the host's status, with its
// origin and frames, and drops it when the exception is swallowed.
class StatusError : public Error {
 public:
  // `taken` is not NULL.
  explicit StatusError(lb_status* taken)
      : Error(services.host->code(taken), services.host->message(taken)),
        holder_(std::make_shared<Holder>(taken)) {}

  // The status, which the caller must return or drop. NULL when it was released before.
  lb_status* release() const noexcept { return std::exchange(holder_->status, nullptr); }

 private:
  struct Holder {
    explicit Holder(lb_status* taken) noexcept : status(taken) {}
    Holder(const Holder&) = delete;
    Holder& operator=(const Holder&) = delete;
    ~Holder() { services.host->drop(status); }
    lb_status* status;
  };
  std::shared_ptr<Holder> holder_;  // shared, because exceptions are copied
};

// Throws StatusError unless `status` is NULL. Takes the status over.
inline void check(lb_status* status) {
  if (status != nullptr) {
    throw StatusError(status);
  }
}

// Runs `body` and turns what it throws into a status: the one place where exceptions end. `what` is
// the function the host called ("loss()") and `component` the name of who runs it, for the frame
// that is added to the error; nullptr: no frame.
template <class Body>
lb_status* guard(const char* what, const char* component, Body&& body) noexcept {
  const lb_host* host = services.host;
  const auto framed = [&](lb_status* status) noexcept {
    try {
      if (component == nullptr) {
        return status;
      }
      const std::string frame = std::string("while '") + component + "' ran " + what;
      return host->context(host, status, "", 0, frame.c_str());
    } catch (...) {
      return status;
    }
  };
  try {
    body();
    return nullptr;
  } catch (const StatusError& error) {
    return framed(error.release());
  } catch (const Error& error) {
    return framed(host->fail(host, error.code, error.file, error.line, error.what()));
  } catch (const std::bad_alloc&) {
    return host->fail(host, LB_HOST_OOM, what, 0, "out of host memory");
  } catch (const std::exception& error) {
    return framed(host->fail(host, LB_INTERNAL, what, 0, error.what()));
  } catch (...) {
    return framed(host->fail(host, LB_UNKNOWN, what, 0, "an exception of unknown type"));
  }
}

// Looks the services up. Called by the plugin's init(); a test that drives SDK code directly calls
// it with its own host. A missing tensor, dispatch, batch or config service is
// LB_VERSION_MISMATCH; the others are missed when they are used. [control]
inline lb_status* bind(const lb_host* host) noexcept {
  const auto find = [host](const char* id) { return host->get_service(host, id); };
  Services found;
  found.host = host;
  found.tensor = static_cast<const lb_tensor_api*>(find("limbeck.tensor/1"));
  found.dispatch = static_cast<const lb_dispatch_api*>(find("limbeck.dispatch/1"));
  found.batch = static_cast<const lb_batch_api*>(find("limbeck.batch/1"));
  found.config = static_cast<const lb_config_api*>(find("limbeck.config/1"));
  found.random = static_cast<const lb_random_api*>(find("limbeck.random/1"));
  found.group = static_cast<const lb_group_api*>(find("limbeck.group/1"));
  for (const auto& [table, id] : {std::pair<const void*, const char*>{found.tensor, "tensor"},
                                  {found.dispatch, "dispatch"},
                                  {found.batch, "batch"},
                                  {found.config, "config"}}) {
    if (table == nullptr) {
      char message[96] = "this host does not have the service limbeck.";
      std::strcat(std::strcat(message, id), "/1");
      return host->fail(host, LB_VERSION_MISMATCH, __FILE__, __LINE__, message);
    }
  }
  services = found;
  return nullptr;
}

// One line in the host's log; `component` says who speaks. [any]
inline void log(lb_level level,
                const char* component,
                const std::string& message,
                const char* file = __builtin_FILE(),
                int32_t line = __builtin_LINE()) noexcept {
  if (services.host->log_enabled(services.host, level) != 0) {
    services.host->log(services.host, level, component, file, line, message.c_str());
  }
}

// Logs a failure that has no way to travel further, and drops it. NULL is fine. [any]
inline void report(lb_status* status) noexcept {
  if (status != nullptr) {
    services.host->log(services.host, LB_ERROR, "plugin", "", 0, services.host->message(status));
    services.host->drop(status);
  }
}

// Progress of work that takes over a second; `total` -1: unknown. The host decides what to show.
// [any]
inline void progress(const char* what, int64_t done, int64_t total = -1) noexcept {
  services.host->progress(services.host, what, done, total);
}

// Throws Error(LB_CANCELLED) when the user wants the run to stop at once. For rank-local loops that
// take over 100 ms; never between collectives. [any]
inline void poll_stop() {
  if (services.host->poll_stop(services.host) == LB_STOP_NOW) {
    throw Error(LB_CANCELLED, "stopped by the user");
  }
}

}  // namespace v1
}  // namespace lb
