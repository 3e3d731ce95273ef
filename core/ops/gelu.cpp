// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>

#include "core/ops/devices.hpp"
#include "core/ops/fused.hpp"
#include "core/ops/kernels/kernels.hpp"
#include "core/ops/node.hpp"
#include "core/ops/parallel.hpp"
#include "core/ops/support.hpp"

namespace limbeck {
namespace {

using torch::autograd::variable_list;

struct Gelu {
  static const char* name() { return "LimbeckGeluTanh"; }
  static bool saves_output(size_t /*i*/) { return false; }

  variable_list composite(const variable_list& in) const { return {at::gelu(in[0], "tanh")}; }

  static bool is_fused(const variable_list& in) {
    return has_loops(in) || devices::has(devices::gelu_forward(), in, {});
  }

  variable_list forward(const variable_list& in, variable_list& /*extra*/) const {
    if (!in[0].is_cpu()) {
      return {devices::gelu_forward().call(in[0])};
    }
    const auto x = in[0].contiguous();
    auto y = at::empty_like(x);
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "gelu_tanh", [&] {
      const auto* from = x.const_data_ptr<scalar_t>();
      auto* to = y.mutable_data_ptr<scalar_t>();
      const auto& loops = kernels::kernels<scalar_t>();
      over_rows(x.numel(), 1, [&](int64_t begin, int64_t end) {
        loops.gelu_forward(from + begin, to + begin, end - begin);
      });
    });
    return {y};
  }

  variable_list backward(const variable_list& in,
                         const variable_list& /*out*/,
                         const variable_list& /*extra*/,
                         const variable_list& grads,
                         const std::vector<bool>& /*needs*/) const {
    if (!in[0].is_cpu()) {
      return {devices::gelu_backward().call(grads[0], in[0])};
    }
    const auto x = in[0].contiguous();
    const auto grad_y = grads[0].contiguous();
    auto grad_x = at::empty_like(x);
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "gelu_tanh", [&] {
      const auto* from = x.const_data_ptr<scalar_t>();
      const auto* grad = grad_y.const_data_ptr<scalar_t>();
      auto* to = grad_x.mutable_data_ptr<scalar_t>();
      const auto& loops = kernels::kernels<scalar_t>();
      over_rows(x.numel(), 1, [&](int64_t begin, int64_t end) {
        loops.gelu_backward(from + begin, grad + begin, to + begin, end - begin);
      });
    });
    return {grad_x};
  }
};

}  // namespace

at::Tensor gelu_tanh(const at::Tensor& x) {
  const variable_list in = {x};
  return Gelu::is_fused(in) ? OpNode<Gelu>::apply({}, in)[0] : Gelu().composite(in)[0];
}

}  // namespace limbeck
