// SPDX-License-Identifier: Apache-2.0
#include "core/ops/short_attention.hpp"

#include <ATen/Dispatch.h>

#include "core/ops/kernels/kernels.hpp"
#include "core/ops/node.hpp"
#include "core/ops/parallel.hpp"
#include "core/ops/support.hpp"

namespace limbeck {
namespace {

using torch::autograd::variable_list;

constexpr int64_t kMostWeights = 65536;

// The matrix of one head of one sample in a tensor [b, t, h, d].
template <class T>
struct Heads {
  T* data;
  int64_t batch_stride;
  int64_t row_stride;
  int64_t head_stride;

  T* at(int64_t sample, int64_t head) const {
    return data + sample * batch_stride + head * head_stride;
  }
};

template <class T>
Heads<const T> heads_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<T>(), tensor.stride(0), tensor.stride(1), tensor.stride(2)};
}
template <class T>
Heads<T> heads_to(at::Tensor& tensor) {
  return {tensor.mutable_data_ptr<T>(), tensor.stride(0), tensor.stride(1), tensor.stride(2)};
}

struct ShortAttention {
  double scale = 1;
  bool keeps_weights = false;  // for backward

  static const char* name() { return "LimbeckShortAttention"; }
  static bool saves_output(size_t /*i*/) { return false; }
  enum In { kQ, kK, kV };

  variable_list composite(const variable_list& in) const {
    const auto q = in[kQ].transpose(1, 2);
    const auto k = in[kK].transpose(1, 2);
    const auto v = in[kV].transpose(1, 2);
    const auto weights = at::softmax(at::matmul(q, k.transpose(2, 3)) * scale, -1);
    return {at::matmul(weights, v).transpose(1, 2)};
  }

  variable_list forward(const variable_list& in, variable_list& extra) const {
    const auto q = with_dense_rows(in[kQ]);
    const auto k = with_dense_rows(in[kK]);
    const auto v = with_dense_rows(in[kV]);
    const auto samples = q.size(0);
    const auto rows = q.size(1);
    const auto heads = q.size(2);
    const auto width = q.size(3);
    const auto keys = k.size(1);
    auto out = at::empty({samples, rows, heads, width}, q.options());
    if (keeps_weights) {
      extra = {at::empty({samples, heads, rows, keys}, q.options())};
    }
    AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "short_attention", [&] {
      const auto q_at = heads_of<scalar_t>(q);
      const auto k_at = heads_of<scalar_t>(k);
      const auto v_at = heads_of<scalar_t>(v);
      const auto out_at = heads_to<scalar_t>(out);
      auto* all = keeps_weights ? extra[0].mutable_data_ptr<scalar_t>() : nullptr;
      const ThreadSums<scalar_t> turned(keys * width, q.options());
      const ThreadSums<scalar_t> scratch(keeps_weights ? 0 : rows * keys, q.options());
      const auto& loops = kernels::kernels<scalar_t>();
      over_heads(samples, heads, rows * keys * width, [&](int64_t sample, int64_t head) {
        auto* p = keeps_weights ? all + (sample * heads + head) * rows * keys : scratch.mine();
        auto* k_turned = turned.mine();
        loops.transpose(k_at.at(sample, head), keys, width, k_at.row_stride, k_turned);
        loops.small_product({rows, keys, width, static_cast<scalar_t>(scale), q_at.at(sample, head),
                             q_at.row_stride, 1, k_turned, keys, p, keys});
        loops.softmax(p, rows, keys);
        loops.small_product({rows, width, keys, 1, p, keys, 1, v_at.at(sample, head),
                             v_at.row_stride, out_at.at(sample, head), out_at.row_stride});
      });
    });
    return {out};
  }

  variable_list backward(const variable_list& in,
                         const variable_list& /*out*/,
                         const variable_list& extra,
                         const variable_list& grads,
                         const std::vector<bool>& /*needs*/) const {
    const auto q = with_dense_rows(in[kQ]);
    const auto k = with_dense_rows(in[kK]);
    const auto v = with_dense_rows(in[kV]);
    const auto grad_out = with_dense_rows(grads[0]);
    const auto samples = q.size(0);
    const auto rows = q.size(1);
    const auto heads = q.size(2);
    const auto width = q.size(3);
    const auto keys = k.size(1);
    auto grad_q = at::empty(q.sizes(), q.options());
    auto grad_k = at::empty(k.sizes(), k.options());
    auto grad_v = at::empty(v.sizes(), v.options());
    AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "short_attention", [&] {
      const auto q_at = heads_of<scalar_t>(q);
      const auto k_at = heads_of<scalar_t>(k);
      const auto v_at = heads_of<scalar_t>(v);
      const auto grad_at = heads_of<scalar_t>(grad_out);
      const auto to_q = heads_to<scalar_t>(grad_q);
      const auto to_k = heads_to<scalar_t>(grad_k);
      const auto to_v = heads_to<scalar_t>(grad_v);
      const auto* all = extra[0].const_data_ptr<scalar_t>();
      const ThreadSums<scalar_t> turned(keys * width, q.options());
      const ThreadSums<scalar_t> scratch(rows * keys, q.options());
      const auto by = static_cast<scalar_t>(scale);
      const auto& loops = kernels::kernels<scalar_t>();
      over_heads(samples, heads, rows * keys * width, [&](int64_t sample, int64_t head) {
        const auto* p = all + (sample * heads + head) * rows * keys;
        auto* grad_p = scratch.mine();
        auto* v_turned = turned.mine();
        const auto* grad = grad_at.at(sample, head);
        loops.small_product({keys, width, rows, 1, p, 1, keys, grad, grad_at.row_stride,
                             to_v.at(sample, head), to_v.row_stride});
        loops.transpose(v_at.at(sample, head), keys, width, v_at.row_stride, v_turned);
        loops.small_product(
            {rows, keys, width, 1, grad, grad_at.row_stride, 1, v_turned, keys, grad_p, keys});
        loops.softmax_backward(p, grad_p, rows, keys);
        loops.small_product({rows, width, keys, by, grad_p, keys, 1, k_at.at(sample, head),
                             k_at.row_stride, to_q.at(sample, head), to_q.row_stride});
        loops.small_product({keys, width, rows, by, grad_p, 1, keys, q_at.at(sample, head),
                             q_at.row_stride, to_k.at(sample, head), to_k.row_stride});
      });
    });
    return {grad_q, grad_k, grad_v};
  }

 private:
  // `work`: multiplications of one product.
  template <class Body>
  static void over_heads(int64_t samples, int64_t heads, int64_t work, const Body& body) {
    over_rows(samples * heads, work, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        body(task / heads, task % heads);
      }
    });
  }
};

}  // namespace

bool is_short_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return has_loops({q, k, v}) && q.size(1) * k.size(1) <= kMostWeights && q.numel() > 0 &&
         k.numel() > 0;
}

at::Tensor short_attention(const at::Tensor& q,
                           const at::Tensor& k,
                           const at::Tensor& v,
                           double scale) {
  const bool keeps_weights =
      at::GradMode::is_enabled() && (q.requires_grad() || k.requires_grad() || v.requires_grad());
  return OpNode<ShortAttention>::apply({scale, keeps_weights}, {q, k, v})[0];
}

}  // namespace limbeck
