// SPDX-License-Identifier: Apache-2.0
#include "core/ops/devices.hpp"

#include <c10/core/TensorOptions.h>

namespace limbeck::devices {
namespace {

template <class Signature>
c10::TypedOperatorHandle<Signature> find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

bool has_type_and_device(const Tensor& tensor, at::ScalarType type, c10::Device device) {
  return !tensor.defined() || (tensor.scalar_type() == type && tensor.device() == device);
}

}  // namespace

const c10::TypedOperatorHandle<NormForward>& norm_forward() {
  static const auto op = find<NormForward>("limbeck::_residual_norm_forward");
  return op;
}
const c10::TypedOperatorHandle<NormBackward>& norm_backward() {
  static const auto op = find<NormBackward>("limbeck::_residual_norm_backward");
  return op;
}
const c10::TypedOperatorHandle<RmsForward>& rms_forward() {
  static const auto op = find<RmsForward>("limbeck::_rms_norm_rope_forward");
  return op;
}
const c10::TypedOperatorHandle<RmsBackward>& rms_backward() {
  static const auto op = find<RmsBackward>("limbeck::_rms_norm_rope_backward");
  return op;
}
const c10::TypedOperatorHandle<GeluForward>& gelu_forward() {
  static const auto op = find<GeluForward>("limbeck::_gelu_tanh_forward");
  return op;
}
const c10::TypedOperatorHandle<GeluBackward>& gelu_backward() {
  static const auto op = find<GeluBackward>("limbeck::_gelu_tanh_backward");
  return op;
}
const c10::TypedOperatorHandle<AdamW>& adamw() {
  static const auto op = find<AdamW>("limbeck::_adamw_ema");
  return op;
}

bool has(const c10::OperatorHandle& half, at::TensorList values, at::TensorList rows) {
  const auto& first = values[0];
  const auto device = first.device();
  const auto type = first.scalar_type();
  const bool is_rehearsed = first.is_meta();
  if (is_rehearsed ? type != at::kFloat && type != at::kDouble
                   : type != at::kFloat && type != at::kBFloat16 && type != at::kHalf) {
    return false;
  }
  for (const auto& tensor : values) {
    if (!has_type_and_device(tensor, type, device)) {
      return false;
    }
  }
  for (const auto& tensor : rows) {
    if (!has_type_and_device(tensor, type, device) &&
        (is_rehearsed || !has_type_and_device(tensor, at::kFloat, device))) {
      return false;
    }
  }
  return half.hasKernelForDispatchKey(c10::computeDispatchKey(type, first.layout(), device));
}

}  // namespace limbeck::devices
