// SPDX-License-Identifier: Apache-2.0
// lb_tensor* <-> at::Tensor. A handle is a heap-allocated at::Tensor, nothing more.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include <limbeck/abi.h>

namespace limbeck {

// Lent handles: valid as long as the tensor object they were made from.
inline at::Tensor& tensor_of(lb_tensor* handle) { return *reinterpret_cast<at::Tensor*>(handle); }
inline const at::Tensor& tensor_of(const lb_tensor* handle) {
  return *reinterpret_cast<const at::Tensor*>(handle);
}
inline lb_tensor* lend(const at::Tensor& tensor) {
  return reinterpret_cast<lb_tensor*>(const_cast<at::Tensor*>(&tensor));
}

// Owned handles: give() makes one, take() ends it, discard() drops it (nullptr is fine).
inline lb_tensor* give(at::Tensor tensor) {
  return reinterpret_cast<lb_tensor*>(new at::Tensor(std::move(tensor)));
}
inline at::Tensor take(lb_tensor* handle) {
  std::unique_ptr<at::Tensor> owner(reinterpret_cast<at::Tensor*>(handle));
  return std::move(*owner);
}
inline void discard(lb_tensor* handle) { delete reinterpret_cast<at::Tensor*>(handle); }

// Undefined tensors become null handles.
inline std::vector<lb_tensor*> lend_all(at::ArrayRef<at::Tensor> tensors) {
  std::vector<lb_tensor*> handles;
  handles.reserve(tensors.size());
  for (const auto& tensor : tensors) {
    handles.push_back(tensor.defined() ? lend(tensor) : nullptr);
  }
  return handles;
}

// The scalar type of an lb_dtype; throws c10::Error for a number that is none.
at::ScalarType scalar_type(lb_dtype dtype);
// Throws c10::Error for a scalar type that does not cross the boundary.
lb_dtype dtype_of(at::ScalarType type);

}  // namespace limbeck
