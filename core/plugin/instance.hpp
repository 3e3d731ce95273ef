// SPDX-License-Identifier: Apache-2.0
// One instance of a component whose vtable has create() and destroy().
#pragma once

#include <string>
#include <utility>

#include <limbeck/abi.h>

#include "core/base/text.hpp"
#include "core/manifest/manifest.hpp"
#include "core/plugin/status.hpp"

namespace limbeck {

template <class Vtable>
class Instance {
 public:
  // Runs create(), which checks rules between options. `spec` must outlive this object. Throws
  // Error that names the component and its place in the manifest. [control]
  explicit Instance(const ComponentSpec& spec)
      : spec_(&spec), vtable_(&spec.component->vtable<Vtable>()) {
    call_plugin(
        [&] { return vtable_->create(spec.component->library->state, spec.config.get(), &self_); },
        [this] { return title(); });
  }
  ~Instance() {
    if (self_ != nullptr) {
      vtable_->destroy(self_);
    }
  }
  Instance(Instance&& other) noexcept
      : spec_(other.spec_), vtable_(other.vtable_), self_(std::exchange(other.self_, nullptr)) {}
  Instance& operator=(Instance&&) = delete;

  const ComponentSpec& spec() const { return *spec_; }
  const Vtable& vtable() const { return *vtable_; }
  void* self() const { return self_; }
  // For frames of errors: "in prepare[0] 'x' (x.toml:12:1)".
  std::string title() const {
    return cat("in ", spec_->key, " '", spec_->component->name(), "' (", to_string(spec_->at), ")");
  }

 private:
  const ComponentSpec* spec_;
  const Vtable* vtable_;
  void* self_ = nullptr;
};

}  // namespace limbeck
