// SPDX-License-Identifier: Apache-2.0
#include "core/tensor/handle.hpp"

#include <array>

namespace limbeck {
namespace {

// In the order of the LB_ dtypes.
constexpr std::array kTypes = {at::kFloat, at::kDouble, at::kHalf,          at::kBFloat16,
                               at::kLong,  at::kInt,    at::kShort,         at::kChar,
                               at::kByte,  at::kBool,   at::kFloat8_e4m3fn, at::kFloat8_e5m2};

}  // namespace

at::ScalarType scalar_type(lb_dtype dtype) {
  TORCH_CHECK(dtype >= 0 && static_cast<size_t>(dtype) < kTypes.size(), "there is no dtype number ",
              dtype, "; limbeck/abi.h lists them");
  return kTypes[static_cast<size_t>(dtype)];
}

lb_dtype dtype_of(at::ScalarType type) {
  for (size_t i = 0; i < kTypes.size(); ++i) {
    if (kTypes[i] == type) {
      return static_cast<lb_dtype>(i);
    }
  }
  TORCH_CHECK(false, "tensors of type ", c10::toString(type), " cannot cross the plugin boundary");
}

}  // namespace limbeck
