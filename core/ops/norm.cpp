// SPDX-License-Identifier: Apache-2.0
// Modulated LayerNorm and gated residual, alone and together: all are one loop with parts left out.
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

at::Tensor dense_or_none(const at::Tensor& rows) {
  return rows.defined() ? with_dense_rows(rows) : rows;
}

int64_t rows_per_batch(const at::Tensor& rows) { return rows.dim() == 3 ? rows.size(1) : 1; }

void check_rows(const at::Tensor& x, const at::Tensor& rows, const char* name) {
  const bool fits = (rows.dim() == 1 || (rows.dim() == 2 && rows.size(0) == x.size(0)) ||
                     (rows.dim() == 3 && rows.size(0) == x.size(0) && rows.size(1) > 0 &&
                      x.size(1) % rows.size(1) == 0)) &&
                    rows.size(-1) == x.size(2);
  TORCH_CHECK(fits, name,
              " must be [D], [b, D] or [b, g, D] with g a divisor of S, for x [b, S, D] = ",
              x.sizes(), "; got ", rows.sizes());
}

void check_operand(const at::Tensor& x) {
  TORCH_CHECK(x.dim() == 3, "x must be [b, S, D], got ", x.sizes());
}

// rows in a shape that broadcasts against `like`, [b, S, D] or, for [b, g, D], [b, g, S / g, D].
at::Tensor spread(const at::Tensor& rows) { return rows.dim() == 1 ? rows : rows.unsqueeze(-2); }
at::Tensor grouped(const at::Tensor& x, const at::Tensor& rows) {
  return rows.dim() == 3 ? x.unflatten(1, {rows.size(1), -1}) : x;
}
at::Tensor ungrouped(const at::Tensor& x) { return x.dim() == 4 ? x.flatten(1, 2) : x; }

at::Tensor composite_residual(const at::Tensor& x, const at::Tensor& y, const at::Tensor& gate) {
  if (!gate.defined()) {
    return x + y;
  }
  const auto type = gate.scalar_type();
  return ungrouped(at::addcmul(grouped(x.to(type), gate), grouped(y.to(type), gate), spread(gate)))
      .to(x.scalar_type());
}

at::Tensor composite_norm(const at::Tensor& z,
                          const at::Tensor& shift,
                          const at::Tensor& scale,
                          bool plus_one,
                          double eps) {
  const auto wide = z.to(scale.scalar_type());
  const auto normed = grouped(at::layer_norm(wide, {z.size(2)}, {}, {}, eps), scale);
  const auto factor = plus_one ? spread(scale) + 1 : spread(scale);
  return ungrouped(at::addcmul(spread(shift), normed, factor)).to(z.scalar_type());
}

// LayerNorm of x, or of the sum z = x + y gate, or that sum alone. Outputs: u with scale and shift,
// then z with y; both may be there.
struct Norm {
  bool plus_one = true;
  double eps = 0;

  static const char* name() { return "LimbeckResidualNorm"; }
  // z beside u: the norm's backward reads it.
  static bool saves_output(size_t i) { return i == 1; }
  enum In { kX, kShift, kScale, kY, kGate };

  variable_list composite(const variable_list& in) const {
    const auto z = in[kY].defined() ? composite_residual(in[kX], in[kY], in[kGate]) : in[kX];
    return outputs(
        in[kScale].defined() ? composite_norm(z, in[kShift], in[kScale], plus_one, eps) : z,
        in[kScale].defined() && in[kY].defined() ? z : at::Tensor());
  }

  static bool is_fused(const variable_list& in) {
    return has_loops(in) || devices::has(devices::norm_forward(), {in[kX], in[kY]},
                                         {in[kShift], in[kScale], in[kGate]});
  }

  variable_list forward(const variable_list& in, variable_list& extra) const {
    if (!in[kX].is_cpu()) {
      using devices::maybe;
      auto [z, u, statistics] =
          devices::norm_forward().call(in[kX], maybe(in[kY]), maybe(in[kGate]), maybe(in[kShift]),
                                       maybe(in[kScale]), plus_one, eps);
      extra = {statistics};
      return u.defined() ? outputs(u, z) : outputs(z, {});
    }
    const bool has_sum = in[kY].defined();
    const bool is_normed = in[kScale].defined();
    const auto x = in[kX].contiguous();
    const auto y = has_sum ? in[kY].contiguous() : at::Tensor();
    const auto gate = dense_or_none(in[kGate]);
    const auto shift = dense_or_none(in[kShift]);
    const auto scale = dense_or_none(in[kScale]);
    const auto rows = x.size(0) * x.size(1);
    auto u = is_normed ? at::empty_like(x) : at::Tensor();
    auto z = has_sum ? at::empty_like(x) : at::Tensor();
    auto statistics = is_normed ? at::empty({2, rows}, x.options()) : at::Tensor();
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "residual_norm", [&] {
      kernels::NormForward<scalar_t> args;
      args.width = x.size(2);
      args.eps = eps;
      args.x = x.const_data_ptr<scalar_t>();
      if (has_sum) {
        args.y = y.const_data_ptr<scalar_t>();
        args.z = z.mutable_data_ptr<scalar_t>();
      }
      if (gate.defined()) {
        args.gate = gate.const_data_ptr<scalar_t>();
        args.gate_groups = row_groups(gate, x.size(1));
      }
      if (is_normed) {
        args.base = plus_one ? 1 : 0;
        args.scale = scale.const_data_ptr<scalar_t>();
        args.shift = shift.const_data_ptr<scalar_t>();
        args.scale_groups = row_groups(scale, x.size(1));
        args.shift_groups = row_groups(shift, x.size(1));
        args.u = u.mutable_data_ptr<scalar_t>();
        args.mean = statistics.mutable_data_ptr<scalar_t>();
        args.rstd = args.mean + rows;
      }
      const auto& loops = kernels::kernels<scalar_t>();
      over_rows(rows, args.width,
                [&](int64_t begin, int64_t end) { loops.norm_forward(args, begin, end); });
    });
    extra = {statistics};
    return is_normed ? outputs(u, z) : outputs(z, {});
  }

  variable_list backward(const variable_list& in,
                         const variable_list& out,
                         const variable_list& extra,
                         const variable_list& grads,
                         const std::vector<bool>& /*needs*/) const {
    if (!in[kX].is_cpu()) {
      return backward_on_device(in, out, extra, grads);
    }
    const bool has_sum = in[kY].defined();
    const auto [given_u, given_z] = grads_of_u_and_z(in, grads);
    if (!given_u.defined() && !given_z.defined()) {
      return variable_list(in.size());
    }
    const bool is_normed = given_u.defined();
    const auto grad_u = is_normed ? given_u.contiguous() : at::Tensor();
    const auto grad_z = given_z.defined() ? given_z.contiguous() : at::Tensor();
    const auto gate = dense_or_none(in[kGate]);
    const auto y = gate.defined() ? in[kY].contiguous() : at::Tensor();
    const auto tokens = in[kX].size(1);
    const auto rows = in[kX].size(0) * tokens;
    const auto width = in[kX].size(2);
    const auto z = !is_normed ? at::Tensor() : has_sum ? out[1] : in[kX].contiguous();
    const auto scale = is_normed ? with_dense_rows(in[kScale]) : at::Tensor();
    auto grad_x = is_normed ? at::empty_like(z) : grad_z;
    auto grad_y = gate.defined() ? at::empty_like(y) : at::Tensor();
    variable_list result(in.size());
    AT_DISPATCH_FLOATING_TYPES(in[kX].scalar_type(), "residual_norm", [&] {
      kernels::NormBackward<scalar_t> args;
      args.width = width;
      args.grad_z = grad_z.defined() ? grad_z.const_data_ptr<scalar_t>() : nullptr;
      if (is_normed) {
        args.grad_u = grad_u.const_data_ptr<scalar_t>();
        args.z = z.const_data_ptr<scalar_t>();
        args.mean = extra[0].const_data_ptr<scalar_t>();
        args.rstd = args.mean + rows;
        args.base = plus_one ? 1 : 0;
        args.scale = scale.const_data_ptr<scalar_t>();
        args.scale_groups = row_groups(scale, tokens);
        args.groups = rows_per_batch(scale);
        args.is_shared = scale.dim() == 1;
        args.grad_x = grad_x.mutable_data_ptr<scalar_t>();
      }
      if (gate.defined()) {
        args.y = y.const_data_ptr<scalar_t>();
        args.gate = gate.const_data_ptr<scalar_t>();
        args.gate_groups = row_groups(gate, tokens);
        args.gates = rows_per_batch(gate);
        args.gate_shared = gate.dim() == 1;
        args.grad_y = grad_y.mutable_data_ptr<scalar_t>();
      }
      // grad_scale, grad_shift, grad_gate
      const int64_t size = is_normed ? scale.numel() : 0;
      const ThreadSums<scalar_t> sums(2 * size + (gate.defined() ? gate.numel() : 0),
                                      in[kX].options());
      const auto& loops = kernels::kernels<scalar_t>();
      over_rows(rows, width, [&](int64_t begin, int64_t end) {
        auto own = args;
        own.grad_scale = sums.mine();
        own.grad_shift = own.grad_scale + size;
        own.grad_gate = own.grad_shift + size;
        loops.norm_backward(own, begin, end);
      });
      const auto joined = sums.join();
      if (is_normed) {
        result[kScale] = joined.narrow(0, 0, size).view(scale.sizes());
        result[kShift] = joined.narrow(0, size, size).view(scale.sizes());
      }
      if (gate.defined()) {
        result[kGate] = joined.narrow(0, 2 * size, gate.numel()).view(gate.sizes());
      }
    });
    result[kX] = grad_x;
    if (has_sum) {
      result[kY] = gate.defined() ? grad_y : grad_x;
    }
    return result;
  }

 private:
  static variable_list outputs(const at::Tensor& first, const at::Tensor& second) {
    return second.defined() ? variable_list{first, second} : variable_list{first};
  }

  // Those of absent or unused outputs are undefined.
  static std::pair<at::Tensor, at::Tensor> grads_of_u_and_z(const variable_list& in,
                                                            const variable_list& grads) {
    if (!in[kScale].defined()) {
      return {at::Tensor(), grads[0]};
    }
    return {grads[0], in[kY].defined() ? grads[1] : at::Tensor()};
  }

  variable_list backward_on_device(const variable_list& in,
                                   const variable_list& out,
                                   const variable_list& extra,
                                   const variable_list& grads) const {
    using devices::maybe;
    variable_list result(in.size());
    const bool has_sum = in[kY].defined();
    const auto [grad_u, grad_z] = grads_of_u_and_z(in, grads);
    if (!grad_u.defined() && !grad_z.defined()) {
      return result;
    }
    const auto z = !grad_u.defined() ? at::Tensor() : has_sum ? out[1] : in[kX];
    std::tie(result[kX], result[kY], result[kGate], result[kShift], result[kScale]) =
        devices::norm_backward().call(maybe(grad_z), maybe(grad_u), maybe(z), maybe(in[kY]),
                                      maybe(in[kGate]), maybe(in[kScale]), maybe(extra[0]),
                                      plus_one);
    if (has_sum && !in[kGate].defined()) {
      result[kY] = result[kX];
    }
    return result;
  }
};

variable_list apply(const Norm& op, const variable_list& in) {
  return Norm::is_fused(in) ? OpNode<Norm>::apply(op, in) : op.composite(in);
}

variable_list apply_norm(const Norm& op, const variable_list& in) {
  check_operand(in[Norm::kX]);
  check_rows(in[Norm::kX], in[Norm::kShift], "shift");
  check_rows(in[Norm::kX], in[Norm::kScale], "scale");
  TORCH_CHECK(in[Norm::kShift].sizes() == in[Norm::kScale].sizes(),
              "shift and scale must have one shape, got ", in[Norm::kShift].sizes(), " and ",
              in[Norm::kScale].sizes());
  return apply(op, in);
}

void check_sum(const at::Tensor& x, const at::Tensor& y, const std::optional<at::Tensor>& gate) {
  check_operand(x);
  TORCH_CHECK(x.sizes() == y.sizes(), "x and y must have one shape, got ", x.sizes(), " and ",
              y.sizes());
  if (gate.has_value()) {
    check_rows(x, *gate, "gate");
  }
}

}  // namespace

at::Tensor modulated_norm(const at::Tensor& x,
                          const at::Tensor& shift,
                          const at::Tensor& scale,
                          double eps) {
  return apply_norm({true, eps}, {x, shift, scale, {}, {}})[0];
}

at::Tensor gated_residual(const at::Tensor& x,
                          const at::Tensor& y,
                          const std::optional<at::Tensor>& gate) {
  check_sum(x, y, gate);
  if (!gate.has_value()) {
    return x + y;
  }
  return apply({}, {x, {}, {}, y, *gate})[0];
}

std::tuple<at::Tensor, at::Tensor> residual_norm(const at::Tensor& x,
                                                 const at::Tensor& y,
                                                 const std::optional<at::Tensor>& gate,
                                                 const at::Tensor& shift,
                                                 const at::Tensor& scale,
                                                 bool plus_one,
                                                 double eps) {
  check_sum(x, y, gate);
  auto out = apply_norm({plus_one, eps}, {x, shift, scale, y, gate.value_or(at::Tensor())});
  return {std::move(out[1]), std::move(out[0])};
}

}  // namespace limbeck
