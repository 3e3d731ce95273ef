// SPDX-License-Identifier: Apache-2.0
#include "core/tensor/tensor_api.hpp"

#include <cstring>
#include <memory>

#include <ATen/DLConvertor.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/tensor/guard.hpp"
#include "core/tensor/handle.hpp"

namespace limbeck {
namespace {

at::Device device = at::kCPU;  // NOLINT(cert-err58-cpp): throws for an unknown type only

lb_tensor* tensor_retain(const lb_tensor* tensor) noexcept { return give(tensor_of(tensor)); }
void tensor_release(lb_tensor* tensor) noexcept { discard(tensor); }

lb_status* tensor_info(const lb_tensor* tensor, lb_tensor_info* out) noexcept {
  return guarded([&] {
    const auto& value = tensor_of(tensor);
    TORCH_CHECK(value.defined(), "info() of an undefined tensor");
    const uint32_t size = out->struct_size;
    TORCH_CHECK(size >= sizeof(lb_tensor_info), "lb_tensor_info.struct_size is ", size,
                ", expected at least ", sizeof(lb_tensor_info));
    out->dtype = dtype_of(value.scalar_type());
    out->device_type = value.is_cuda() ? 2 : 1;  // kDLCUDA, kDLCPU
    out->device_index = value.is_cuda() ? value.get_device() : 0;
    out->ndim = static_cast<uint32_t>(value.dim());
    out->requires_grad = value.requires_grad() ? 1 : 0;
    out->sizes = value.sizes().data();
    out->strides = value.strides().data();
    out->data = value.numel() > 0 && !value.is_meta() ? value.data_ptr() : nullptr;
    out->stream = nullptr;
  });
}

lb_status* tensor_create(lb_dtype dtype,
                         const int64_t* sizes,
                         uint32_t ndim,
                         const void* data,
                         lb_place place,
                         lb_tensor** out) noexcept {
  return guarded([&] {
    TORCH_CHECK(place == LB_CPU || place == LB_DEVICE, "there is no place number ", place);
    at::NoGradGuard no_grad;
    auto tensor = at::empty(at::IntArrayRef(sizes, ndim), scalar_type(dtype));
    if (data != nullptr && tensor.nbytes() > 0) {
      std::memcpy(tensor.data_ptr(), data, tensor.nbytes());
    }
    *out = give(place == LB_DEVICE ? tensor.to(device) : tensor);
  });
}

lb_status* tensor_read(const lb_tensor* tensor,
                       lb_dtype dtype,
                       void* out,
                       uint64_t bytes) noexcept {
  return guarded([&] {
    at::NoGradGuard no_grad;
    const auto value = tensor_of(tensor).detach().to(at::kCPU, scalar_type(dtype)).contiguous();
    TORCH_CHECK(value.nbytes() == bytes, "read() of a tensor of shape ", value.sizes(), " as ",
                c10::toString(value.scalar_type()), " needs ", value.nbytes(), " bytes, got ",
                bytes);
    if (bytes > 0) {
      std::memcpy(out, value.data_ptr(), bytes);
    }
  });
}

// A plugin's differentiable function. Keeps its self pointer until the last graph that holds it
// is gone.
struct GradFn : torch::CustomClassHolder {
  explicit GradFn(const lb_grad_fn& table) : fn(table) {}
  ~GradFn() override {
    if (fn.release != nullptr) {
      fn.release(fn.self);
    }
  }
  GradFn(const GradFn&) = delete;
  GradFn& operator=(const GradFn&) = delete;

  lb_grad_fn fn;
};

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Apply : torch::autograd::Function<Apply> {
  static variable_list forward(AutogradContext* context,
                               at::TensorList in,
                               const c10::intrusive_ptr<GradFn>& fn,
                               int64_t n_out) {
    context->save_for_backward(in.vec());
    context->saved_data["fn"] = c10::IValue::make_capsule(fn);
    context->set_materialize_grads(false);
    const auto handles = lend_all(in);
    std::vector<lb_tensor*> results(static_cast<size_t>(n_out), nullptr);
    check(fn->fn.forward(fn->fn.self, handles.data(), static_cast<uint32_t>(handles.size()),
                         results.data(), static_cast<uint32_t>(n_out)),
          "while running the forward function of a plugin's differentiable function");
    variable_list out;
    for (auto* result : results) {
      TORCH_CHECK(result != nullptr, "forward() of a differentiable function left an output empty");
      out.push_back(take(result));
    }
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_out) {
    const auto in = context->get_saved_variables();
    const auto fn =
        c10::static_intrusive_pointer_cast<GradFn>(context->saved_data["fn"].toCapsule());
    const auto in_handles = lend_all(in);
    const auto out_handles = lend_all(grad_out);
    std::vector<lb_tensor*> grads(in.size(), nullptr);
    check(fn->fn.backward(fn->fn.self, in_handles.data(), static_cast<uint32_t>(in.size()),
                          out_handles.data(), static_cast<uint32_t>(grad_out.size()), grads.data()),
          "while running the backward function of a plugin's differentiable function");
    variable_list result;
    for (auto* grad : grads) {
      result.push_back(grad != nullptr ? take(grad) : at::Tensor());
    }
    result.resize(in.size() + 2);
    return result;
  }
};

lb_status* tensor_apply(const lb_grad_fn* fn,
                        lb_tensor* const* in,
                        uint32_t n_in,
                        lb_tensor** out,
                        uint32_t n_out) noexcept {
  // From here on the GradFn owns fn->self: it is released whatever happens.
  auto owner = c10::make_intrusive<GradFn>(*fn);
  return guarded([&] {
    variable_list inputs;
    for (uint32_t i = 0; i < n_in; ++i) {
      TORCH_CHECK(in[i] != nullptr && tensor_of(in[i]).defined(), "apply(): input ", i,
                  " is missing; pass an empty tensor for an absent one");
      inputs.push_back(tensor_of(in[i]));
    }
    auto results = Apply::apply(at::TensorList(inputs), owner, static_cast<int64_t>(n_out));
    for (uint32_t i = 0; i < n_out; ++i) {
      out[i] = give(results[i]);
    }
  });
}

lb_status* tensor_gradient(lb_tensor* const* outputs,
                           lb_tensor* const* grad_outputs,
                           uint32_t n_out,
                           lb_tensor* const* inputs,
                           uint32_t n_in,
                           int32_t keep_graph,
                           lb_tensor** grads) noexcept {
  return guarded([&] {
    variable_list from, seeds, to;
    for (uint32_t i = 0; i < n_out; ++i) {
      from.push_back(tensor_of(outputs[i]));
      const bool has_seed = grad_outputs != nullptr && grad_outputs[i] != nullptr;
      seeds.push_back(has_seed ? tensor_of(grad_outputs[i]) : at::Tensor());
    }
    for (uint32_t i = 0; i < n_in; ++i) {
      to.push_back(tensor_of(inputs[i]));
    }
    auto found = torch::autograd::grad(from, to, seeds, keep_graph != 0, false, true);
    for (uint32_t i = 0; i < n_in; ++i) {
      grads[i] = found[i].defined() ? give(found[i]) : nullptr;
    }
  });
}

int32_t set_grad_mode(int32_t on) noexcept {
  const bool before = at::GradMode::is_enabled();
  at::GradMode::set_enabled(on != 0);
  return before ? 1 : 0;
}

lb_status* to_dlpack(const lb_tensor* tensor, DLManagedTensorVersioned** out) noexcept {
  return guarded([&] {
    const auto& value = tensor_of(tensor);
    TORCH_CHECK(!value.requires_grad(), "to_dlpack() of a tensor with history; detach it first");
    *out = at::toDLPackVersioned(value);
  });
}

lb_status* from_dlpack(DLManagedTensorVersioned* taken, lb_tensor** out) noexcept {
  return guarded([&] { *out = give(at::fromDLPackVersioned(taken)); });
}

}  // namespace

void set_run_device(at::Device to) { device = to; }
at::Device run_device() { return device; }

const lb_tensor_api& tensor_api() {
  static const lb_tensor_api api = {sizeof(lb_tensor_api),
                                    0,
                                    tensor_retain,
                                    tensor_release,
                                    tensor_info,
                                    tensor_create,
                                    tensor_read,
                                    tensor_apply,
                                    tensor_gradient,
                                    set_grad_mode,
                                    to_dlpack,
                                    from_dlpack};
  return api;
}

}  // namespace limbeck
