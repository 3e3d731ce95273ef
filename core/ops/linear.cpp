// SPDX-License-Identifier: Apache-2.0
#include "core/ops/linear.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <ATen/Dispatch.h>

#include "core/ops/kernels/kernels.hpp"
#include "core/ops/node.hpp"
#include "core/ops/parallel.hpp"
#include "core/ops/products.hpp"
#include "core/ops/support.hpp"

namespace limbeck {
namespace {

using torch::autograd::variable_list;

at::Tensor as_rows(const at::Tensor& x) { return x.dim() == 2 ? x : x.reshape({-1, x.size(-1)}); }

at::Tensor with_last_size(const at::Tensor& rows, at::IntArrayRef like) {
  if (like.size() == 2) {
    return rows;
  }
  auto sizes = like.vec();
  sizes.back() = rows.size(-1);
  return rows.view(sizes);
}

// sums += the sums of columns of `rows`.
void add_column_sums(const at::Tensor& sums, const at::Tensor& rows) {
  if (!has_loops({sums, rows})) {
    sums.add_(rows.sum(0));
    return;
  }
  const auto dense = with_dense_rows(rows);
  AT_DISPATCH_FLOATING_TYPES(dense.scalar_type(), "column_sums", [&] {
    const auto* from = dense.const_data_ptr<scalar_t>();
    auto* to = sums.mutable_data_ptr<scalar_t>();
    const auto& loops = kernels::kernels<scalar_t>();
    // Threads share columns, in whole cache lines, so that every sum has one order.
    constexpr int64_t kColumns = 64;
    const auto width = dense.size(1);
    over_rows((width + kColumns - 1) / kColumns, dense.size(0) * kColumns,
              [&](int64_t begin, int64_t end) {
                const auto first = begin * kColumns;
                loops.column_sums(from + first, dense.size(0), dense.stride(0),
                                  std::min(width, end * kColumns) - first, to + first);
              });
  });
}

// grad_out^T x for rows of both. The first product replaces what is there: neither a zeroed buffer
// nor a temporary is needed.
void accumulate_product(GradSlot& slot, const at::Tensor& grad_out, const at::Tensor& rows) {
  product_into(slot.grad, grad_out.t(), rows, !slot.is_fresh);
  slot.is_fresh = false;
  *slot.touched = true;
}

// Parameters are inputs of the node, so that asking autograd for their gradients, or for others
// only, works in the ordinary way; the gradients themselves may go past autograd.
struct Linear {
  GradSlot* weight_slot = nullptr;
  GradSlot* bias_slot = nullptr;

  static const char* name() { return "LimbeckLinear"; }
  static bool saves_output(size_t /*i*/) { return false; }
  enum In { kX, kWeight, kBias };

  variable_list composite(const variable_list& in) const {
    const auto bias = in[kBias].defined() ? std::optional(in[kBias]) : std::nullopt;
    return {at::linear(in[kX], in[kWeight], bias)};
  }

  variable_list forward(const variable_list& in, variable_list& /*extra*/) const {
    const auto rows = linear_product(as_rows(in[kX]), in[kWeight], in[kBias]);
    return {with_last_size(rows, in[kX].sizes())};
  }

  variable_list backward(const variable_list& in,
                         const variable_list& /*out*/,
                         const variable_list& /*extra*/,
                         const variable_list& grads,
                         const std::vector<bool>& needs) const {
    const auto& x = in[kX];
    const auto grad = as_rows(grads[0]);
    variable_list result(3);
    if (needs[kX]) {
      result[kX] = with_last_size(product(grad, in[kWeight]), x.sizes());
    }
    if (needs[kWeight]) {
      if (weight_slot != nullptr) {
        accumulate_product(*weight_slot, grad, as_rows(x));
      } else {
        result[kWeight] = product(grad.t(), as_rows(x));
      }
    }
    if (needs[kBias]) {
      if (bias_slot != nullptr) {
        add_column_sums(bias_slot->grad, grad);
        *bias_slot->touched = true;
      } else {
        result[kBias] = at::zeros({grad.size(1)}, grad.options());
        add_column_sums(result[kBias], grad);
      }
    }
    return result;
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x,
                  const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias,
                  GradSlot* weight_slot,
                  GradSlot* bias_slot) {
  TORCH_CHECK(weight.dim() == 2 && x.dim() >= 1 && x.size(-1) == weight.size(1),
              "linear() takes x [..., in] and a weight [out, in], got ", x.sizes(), " and ",
              weight.sizes());
  return OpNode<Linear>::apply({weight_slot, bias_slot},
                               {x, weight, bias.value_or(at::Tensor())})[0];
}

}  // namespace limbeck
