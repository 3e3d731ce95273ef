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

struct RmsNormRope {
  int64_t heads = 1;
  double eps = 0;

  static const char* name() { return "LimbeckRmsNormRope"; }
  static bool saves_output(size_t /*i*/) { return false; }
  enum In { kX, kWeight, kTable };

  variable_list composite(const variable_list& in) const {
    const auto& x = in[kX];
    const auto& table = in[kTable];
    const auto normed = at::rms_norm(x, {x.size(2)}, in[kWeight], eps).unflatten(2, {heads, -1});
    if (!table.defined()) {
      return {normed};
    }
    // A pair of channels as a complex number turns by one multiplication. There are no complex
    // numbers of 16 bits to multiply.
    const auto type =
        c10::isReducedFloatingType(table.scalar_type()) ? at::kFloat : table.scalar_type();
    const auto pairs = at::view_as_complex(normed.to(type).unflatten(-1, {-1, 2}).contiguous());
    const auto turns = at::view_as_complex(table.to(type).contiguous()).unsqueeze(1);
    return {at::view_as_real(pairs * turns).flatten(3, 4).to(x.scalar_type())};
  }

  static bool is_fused(const variable_list& in) {
    return has_loops(in) ||
           devices::has(devices::rms_forward(), {in[kX]}, {in[kWeight], in[kTable]});
  }

  variable_list forward(const variable_list& in, variable_list& extra) const {
    if (!in[kX].is_cpu()) {
      auto [y, rstd] =
          devices::rms_forward().call(in[kX], in[kWeight], devices::maybe(in[kTable]), heads, eps);
      extra = {rstd};
      return {y};
    }
    const auto x = with_even_rows(in[kX]);
    const auto weight = in[kWeight].contiguous();
    const auto table = in[kTable].defined() ? in[kTable].contiguous() : at::Tensor();
    const auto tokens = x.size(1);
    const auto width = x.size(2);
    const auto rows = x.size(0) * tokens;
    auto y = at::empty({x.size(0), tokens, heads, width / heads}, x.options());
    auto rstd = at::empty({rows}, x.options());
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "rms_norm_rope", [&] {
      kernels::RmsForward<scalar_t> args;
      args.width = width;
      args.head = width / heads;
      args.tokens = tokens;
      args.x_stride = x.stride(1);
      args.eps = eps;
      args.x = x.const_data_ptr<scalar_t>();
      args.weight = weight.const_data_ptr<scalar_t>();
      args.table = table.defined() ? table.const_data_ptr<scalar_t>() : nullptr;
      args.y = y.mutable_data_ptr<scalar_t>();
      args.rstd = rstd.mutable_data_ptr<scalar_t>();
      const auto& loops = kernels::kernels<scalar_t>();
      over_rows(rows, width,
                [&](int64_t begin, int64_t end) { loops.rms_forward(args, begin, end); });
    });
    extra = {rstd};
    return {y};
  }

  variable_list backward(const variable_list& in,
                         const variable_list& /*out*/,
                         const variable_list& extra,
                         const variable_list& grads,
                         const std::vector<bool>& /*needs*/) const {
    if (!in[kX].is_cpu()) {
      auto [grad_x, grad_weight] = devices::rms_backward().call(
          grads[0], in[kX], in[kWeight], devices::maybe(in[kTable]), extra[0], heads);
      return {grad_x, grad_weight, {}};
    }
    const auto x = with_even_rows(in[kX]);
    const auto weight = in[kWeight].contiguous();
    const auto table = in[kTable].defined() ? in[kTable].contiguous() : at::Tensor();
    const auto grad_y = grads[0].contiguous();
    const auto width = x.size(2);
    auto grad_x = at::empty(x.sizes(), x.options());
    at::Tensor grad_weight;
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "rms_norm_rope", [&] {
      kernels::RmsBackward<scalar_t> args;
      args.width = width;
      args.head = width / heads;
      args.tokens = x.size(1);
      args.x_stride = x.stride(1);
      args.x = x.const_data_ptr<scalar_t>();
      args.weight = weight.const_data_ptr<scalar_t>();
      args.table = table.defined() ? table.const_data_ptr<scalar_t>() : nullptr;
      args.rstd = extra[0].const_data_ptr<scalar_t>();
      args.grad_y = grad_y.const_data_ptr<scalar_t>();
      args.grad_x = grad_x.mutable_data_ptr<scalar_t>();
      const ThreadSums<scalar_t> sums(width, weight.options());
      const ThreadSums<scalar_t> scratch(width, weight.options());
      const auto& loops = kernels::kernels<scalar_t>();
      over_rows(x.size(0) * x.size(1), width, [&](int64_t begin, int64_t end) {
        auto own = args;
        own.grad_weight = sums.mine();
        own.scratch = scratch.mine();
        loops.rms_backward(own, begin, end);
      });
      grad_weight = sums.join();
    });
    return {grad_x, grad_weight, {}};
  }
};

}  // namespace

at::Tensor rms_norm_rope(const at::Tensor& x,
                         const at::Tensor& weight,
                         const std::optional<at::Tensor>& table,
                         int64_t heads,
                         double eps) {
  TORCH_CHECK(
      x.dim() == 3 && heads > 0 && x.size(2) % heads == 0 && weight.sizes() == x.sizes().slice(2),
      "rms_norm_rope takes x [b, S, D] and weight [D], D a multiple of ", heads, " heads; got ",
      x.sizes(), " and ", weight.sizes());
  if (table.has_value()) {
    const auto head = x.size(2) / heads;
    TORCH_CHECK(head % 2 == 0 && table->dim() == 3 && table->size(0) == x.size(1) &&
                    table->size(1) == head / 2 && table->size(2) == 2,
                "the table must be [S, D / heads / 2, 2] = [", x.size(1), ", ", head / 2,
                ", 2], got ", table->sizes());
  }
  const variable_list in = {x, weight, table.value_or(at::Tensor())};
  const RmsNormRope op{heads, eps};
  return RmsNormRope::is_fused(in) ? OpNode<RmsNormRope>::apply(op, in)[0] : op.composite(in)[0];
}

}  // namespace limbeck
