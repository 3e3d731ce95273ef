// SPDX-License-Identifier: Apache-2.0
#include "core/ops/linear.hpp"

#include <cstdint>
#include <vector>

#include <torch/csrc/autograd/custom_function.h>

namespace limbeck {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor as_rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

at::Tensor with_last_size(const at::Tensor& rows, at::IntArrayRef like) {
  auto sizes = like.vec();
  sizes.back() = rows.size(-1);
  return rows.view(sizes);
}

at::Tensor product(const at::Tensor& x,
                   const at::Tensor& weight,
                   const std::optional<at::Tensor>& bias) {
  const auto rows = as_rows(x);
  return with_last_size(
      bias.has_value() ? at::addmm(*bias, rows, weight.t()) : at::mm(rows, weight.t()), x.sizes());
}

// grad_out^T x for rows of both, into the slot. The first product replaces what is there: neither
// a zeroed buffer nor a temporary is needed.
void accumulate(GradSlot& slot, const at::Tensor& grad_out, const at::Tensor& rows) {
  if (slot.is_fresh) {
    at::mm_out(slot.grad, grad_out.t(), rows);
    slot.is_fresh = false;
  } else {
    slot.grad.addmm_(grad_out.t(), rows);
  }
  *slot.touched = true;
}

// The weight is an input of the node, so that asking autograd for its gradient, or for others
// only, works in the ordinary way; the gradient itself may go past autograd.
struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext* context,
                            const at::Tensor& x,
                            const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias,
                            int64_t slot) {
    context->save_for_backward({x, weight});
    context->saved_data["slot"] = slot;
    context->saved_data["has_bias"] = bias.has_value();
    return product(x, weight, bias);
  }

  static variable_list backward(AutogradContext* context, variable_list grad_out) {
    const auto saved = context->get_saved_variables();
    const auto& x = saved[0];
    const auto& weight = saved[1];
    const auto grad = as_rows(grad_out[0]);
    variable_list result(4);
    if (context->needs_input_grad(0)) {
      result[0] = with_last_size(grad.mm(weight), x.sizes());
    }
    if (context->needs_input_grad(1)) {
      auto* slot = reinterpret_cast<GradSlot*>(context->saved_data["slot"].toInt());
      if (slot != nullptr) {
        accumulate(*slot, grad, as_rows(x));
      } else {
        result[1] = grad.t().mm(as_rows(x));
      }
    }
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2)) {
      result[2] = grad.sum(0);
    }
    return result;
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x,
                  const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias,
                  GradSlot* slot) {
  TORCH_CHECK(weight.dim() == 2 && x.dim() >= 1 && x.size(-1) == weight.size(1),
              "linear() takes x [..., in] and a weight [out, in], got ", x.sizes(), " and ",
              weight.sizes());
  if (!at::GradMode::is_enabled()) {
    return product(x, weight, bias);
  }
  return Linear::apply(x, weight, bias, reinterpret_cast<int64_t>(slot));
}

}  // namespace limbeck
