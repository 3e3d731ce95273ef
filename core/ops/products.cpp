// SPDX-License-Identifier: Apache-2.0
#include "core/ops/products.hpp"

#include <optional>
#include <string_view>

#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "core/ops/kernels/kernels.hpp"

#ifdef LIMBECK_HAS_ONEDNN
namespace at::native {
// Exported by libtorch, in no header of its packages: result = alpha mat1 mat2 + beta result.
void mkldnn_matmul(
    const Tensor& mat1, const Tensor& mat2, const Tensor& result, float beta, float alpha);
}  // namespace at::native
#endif

namespace limbeck {
namespace {

#ifdef LIMBECK_HAS_ONEDNN
// Multiplications from which oneDNN's lower cost of each outweighs that of a call.
constexpr int64_t kFewest = int64_t{1} << 21;

bool is_onednn_faster() {
#ifdef __x86_64__
  static const bool is_faster =
      kernels::available().back() == kernels::InstructionSet::kAvx512 && !__builtin_cpu_is("intel");
  return is_faster;
#else
  return false;
#endif
}

bool goes_to_onednn(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == at::kFloat && b.scalar_type() == at::kFloat && a.is_cpu() &&
         is_onednn_faster() && a.size(0) * a.size(1) * b.size(1) >= kFewest;
}

at::Tensor onednn_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  using Scalars = c10::List<std::optional<at::Scalar>>;
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("mkldnn::_linear_pointwise", "")
          .typed<at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                            std::string_view, Scalars, std::optional<std::string_view>)>();
  return op.call(x, weight, bias, "none", Scalars(), "");
}
#endif

}  // namespace

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
#ifdef LIMBECK_HAS_ONEDNN
  if (goes_to_onednn(a, b)) {
    auto out = at::empty({a.size(0), b.size(1)}, a.options());
    at::native::mkldnn_matmul(a, b, out, 0, 1);
    return out;
  }
#endif
  return at::mm(a, b);
}

at::Tensor linear_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
#ifdef LIMBECK_HAS_ONEDNN
  if (bias.defined() && goes_to_onednn(x, weight.t())) {
    return onednn_linear(x, weight, bias);
  }
#endif
  return bias.defined() ? at::addmm(bias, x, weight.t()) : product(x, weight.t());
}

void product_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool adds) {
#ifdef LIMBECK_HAS_ONEDNN
  if (goes_to_onednn(a, b)) {
    at::native::mkldnn_matmul(a, b, out, adds ? 1 : 0, 1);
    return;
  }
#endif
  if (adds) {
    out.addmm_(a, b);
  } else {
    at::Tensor target = out;
    at::mm_out(target, a, b);
  }
}

}  // namespace limbeck
