// SPDX-License-Identifier: Apache-2.0
#include "core/ops/products.hpp"

#include <algorithm>
#include <optional>
#include <string_view>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "core/ops/kernels/kernels.hpp"
#include "core/ops/support.hpp"

#ifdef LIMBECK_HAS_ONEDNN
namespace at::native {
// Exported by libtorch, in no header of its packages: result = alpha mat1 mat2 + beta result.
void mkldnn_matmul(
    const Tensor& mat1, const Tensor& mat2, const Tensor& result, float beta, float alpha);
}  // namespace at::native
#endif

namespace limbeck {
namespace {

constexpr int64_t kMostMultiplications = int64_t{1} << 27;

int64_t multiplications(const at::Tensor& a, const at::Tensor& b) {
  return a.size(0) * a.size(1) * b.size(1);
}

// ---- Loops of our own

bool has_own_product(const at::Tensor& a, const at::Tensor& b) {
  return has_loops({a, b}) && multiplications(a, b) <= kMostMultiplications;
}

// Elements per task, rows by columns of the result: a whole number of the loops' tiles.
constexpr int64_t kTaskRows = 24;
constexpr int64_t kTaskColumns = 128;
// Multiplications below which another thread costs more than it brings.
constexpr int64_t kFewest = int64_t{1} << 18;

// `b` with dense rows. A transposed view is copied in strips of columns.
template <class T>
at::Tensor with_rows(const at::Tensor& b) {
  if (b.stride(1) == 1 || b.stride(0) != 1) {
    return with_dense_rows(b);
  }
  const auto rows = b.size(0);
  const auto columns = b.size(1);
  auto turned = at::empty({rows, columns}, b.options());
  const auto* from = b.const_data_ptr<T>();
  auto* to = turned.mutable_data_ptr<T>();
  const auto& loops = kernels::kernels<T>();
  constexpr int64_t kStrip = 16;
  at::parallel_for(0, (rows + kStrip - 1) / kStrip, std::max<int64_t>(1, 4096 / columns),
                   [&](int64_t begin, int64_t end) {
                     const auto first = begin * kStrip;
                     const auto last = std::min(rows, end * kStrip);
                     loops.transpose(from + first, columns, last - first, b.stride(1),
                                     to + first * columns);
                   });
  return turned;
}

// out = a b + bias, or out += a b.
void own_product(const at::Tensor& out,
                 const at::Tensor& a,
                 const at::Tensor& b,
                 const at::Tensor& bias,
                 bool adds) {
  AT_DISPATCH_FLOATING_TYPES(out.scalar_type(), "product", [&] {
    const auto right = with_rows<scalar_t>(b);
    kernels::SmallProduct<scalar_t> whole;
    whole.m = a.size(0);
    whole.n = right.size(1);
    whole.k = a.size(1);
    whole.a = a.const_data_ptr<scalar_t>();
    whole.a_row = a.stride(0);
    whole.a_column = a.stride(1);
    whole.b = right.const_data_ptr<scalar_t>();
    whole.b_row = right.stride(0);
    whole.c = out.mutable_data_ptr<scalar_t>();
    whole.c_row = out.stride(0);
    whole.bias = bias.defined() ? bias.const_data_ptr<scalar_t>() : nullptr;
    whole.adds = adds;
    const auto row_tasks = (whole.m + kTaskRows - 1) / kTaskRows;
    const auto column_tasks = (whole.n + kTaskColumns - 1) / kTaskColumns;
    const auto work = std::max<int64_t>(1, kTaskRows * std::min(kTaskColumns, whole.n) * whole.k);
    const auto& loops = kernels::kernels<scalar_t>();
    at::parallel_for(0, row_tasks * column_tasks, std::max<int64_t>(1, kFewest / work),
                     [&](int64_t begin, int64_t end) {
                       for (auto task = begin; task < end; ++task) {
                         const auto row = task % row_tasks * kTaskRows;
                         const auto column = task / row_tasks * kTaskColumns;
                         auto part = whole;
                         part.m = std::min(kTaskRows, whole.m - row);
                         part.n = std::min(kTaskColumns, whole.n - column);
                         part.a += row * whole.a_row;
                         part.b += column;
                         part.c += row * whole.c_row + column;
                         part.bias += part.bias != nullptr ? column : 0;
                         loops.small_product(part);
                       }
                     });
  });
}

// ---- oneDNN

#ifdef LIMBECK_HAS_ONEDNN
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
         is_onednn_faster() && multiplications(a, b) > kMostMultiplications;
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
  if (has_own_product(a, b)) {
    auto out = at::empty({a.size(0), b.size(1)}, a.options());
    own_product(out, a, b, {}, false);
    return out;
  }
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
  const auto turned = weight.t();
  if (bias.defined() && has_own_product(x, turned) && has_loops({x, bias})) {
    auto out = at::empty({x.size(0), turned.size(1)}, x.options());
    own_product(out, x, turned, bias.contiguous(), false);
    return out;
  }
#ifdef LIMBECK_HAS_ONEDNN
  if (bias.defined() && goes_to_onednn(x, turned)) {
    return onednn_linear(x, weight, bias);
  }
#endif
  return bias.defined() ? at::addmm(bias, x, turned) : product(x, turned);
}

void product_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool adds) {
  if (has_own_product(a, b) && has_loops({a, out})) {
    own_product(out, a, b, {}, adds);
    return;
  }
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
