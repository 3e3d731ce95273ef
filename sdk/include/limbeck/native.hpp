// SPDX-License-Identifier: Apache-2.0
// For plugins that share libtorch with the host: lb_tensor* <-> at::Tensor, without a copy. Such a
// plugin is built with limbeck_add_plugin(... NATIVE ...) and loads only into a host with the same
// libtorch. Include it before other headers of the SDK: libtorch's must come first.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <utility>
#include <vector>

#include <limbeck/plugin.hpp>

namespace lb {
inline namespace v1 LB_HIDDEN {
namespace native {

// The libtorch tensor behind a lent handle. Lives as long as the handle.
inline at::Tensor& of(lb_tensor* lent) { return *reinterpret_cast<at::Tensor*>(lent); }
inline const at::Tensor& of(const lb_tensor* lent) {
  return *reinterpret_cast<const at::Tensor*>(lent);
}
inline const at::Tensor& of(const Tensor& tensor) { return of(tensor.raw()); }
// A handle lent for as long as `tensor` lives.
inline lb_tensor* lend(const at::Tensor& tensor) {
  return reinterpret_cast<lb_tensor*>(const_cast<at::Tensor*>(&tensor));
}
// A handle with one reference, for `T** out`; nullptr for an undefined tensor.
inline lb_tensor* give(at::Tensor tensor) {
  return tensor.defined() ? reinterpret_cast<lb_tensor*>(new at::Tensor(std::move(tensor)))
                          : nullptr;
}
// Takes a handle over.
inline at::Tensor take(lb_tensor* taken) {
  const std::unique_ptr<at::Tensor> owner(reinterpret_cast<at::Tensor*>(taken));
  return owner == nullptr ? at::Tensor() : std::move(*owner);
}
// The same tensor as the SDK's type.
inline Tensor wrap(at::Tensor tensor) { return Tensor::take(give(std::move(tensor))); }
inline std::vector<Tensor> wrap(std::vector<at::Tensor> tensors) {
  std::vector<Tensor> wrapped;
  wrapped.reserve(tensors.size());
  for (auto& tensor : tensors) {
    wrapped.push_back(wrap(std::move(tensor)));
  }
  return wrapped;
}

}  // namespace native
}  // namespace v1
}  // namespace lb
