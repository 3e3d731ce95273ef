// SPDX-License-Identifier: Apache-2.0
#include "host/engine.hpp"

#include <dlfcn.h>
#include <malloc.h>
#include <sched.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "core/base/error.hpp"
#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "host/signals.hpp"

namespace limbeck::host {
namespace {

namespace fs = std::filesystem;

// Processors that this process may use: fewer than there are under taskset or in a container.
int64_t allowed_processors() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

// libgomp reads its variables when it is mapped, with libtorch. A number in the manifest counts
// more than the environment, the environment more than the processors. OMP_WAIT_POLICY stays as
// the user has it: the default, which spins, is the faster one on an idle machine.
void set_threads(int64_t threads) {
  const bool is_asked_for = threads > 0;
  const std::string count = std::to_string(is_asked_for ? threads : allowed_processors());
  setenv("OMP_NUM_THREADS", count.c_str(), is_asked_for ? 1 : 0);
}

// A step frees and takes the same large blocks again and again. Kept by the allocator, their pages
// are not given back to the system and cleared anew each time: 2 to 7 % of a step.
void keep_freed_memory() {
  constexpr int kLargestKept = 32 << 20;  // bytes; larger blocks are mapped one by one
  constexpr int kMostKept = 128 << 20;
  mallopt(M_MMAP_THRESHOLD, kLargestKept);
  mallopt(M_TRIM_THRESHOLD, kMostKept);
}

void tell_device(const std::string& device) {
  if (device == "auto") {
    log::info("run", "device \"auto\" is the CPU: this build has no CUDA module");
  }
}

fs::path library_path() {
  return fs::canonical("/proc/self/exe").parent_path().parent_path() / "lib" / "liblimbeck.so";
}

// Global, so that plugins which share libtorch bind to this one. Opened once; never closed.
void* open_library() {
  static void* library = nullptr;
  if (library == nullptr) {
    const fs::path path = library_path();
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) {
      throw Error(Fault::kInternal, cat("cannot open ", path.string(), ": ", dlerror()),
                  "is the installation complete? It needs the libtorch that it was built with");
    }
  }
  return library;
}

template <class Function>
Function find_entry(const char* name) {
  void* entry = dlsym(open_library(), name);
  if (entry == nullptr) {
    throw Error(Fault::kInternal, cat(library_path().string(), " has no ", name),
                "it is of another version than the executable: install both together");
  }
  return reinterpret_cast<Function>(entry);
}

}  // namespace

void open_on_demand(Registry& registry) {
  registry.on_native([] { open_library(); });
}

void run(Job job, const fs::path& config, const ManifestOptions& options) {
  // Never destroyed: plugins and libtorch are used until the process ends.
  auto& registry = *new Registry;
  open_on_demand(registry);
  if (options.is_strict) {
    registry.be_strict();
  }
  auto& manifest = *new Manifest(load_manifest(config, options, registry));
  tell_device(manifest.run.device);

  keep_freed_memory();
  set_threads(manifest.run.threads);
  const auto run_job = find_entry<decltype(&limbeck_run_job)>("limbeck_run_job");
  job.manifest = &manifest;
  job.registry = &registry;
  watch_signals();
  run_job(job);
  registry.stop();
}

void open_engine() {
  set_threads(1);
  open_library();
}

void try_component(ComponentTrial& trial) {
  find_entry<decltype(&limbeck_try_component)>("limbeck_try_component")(trial);
}

}  // namespace limbeck::host
