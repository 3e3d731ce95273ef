// SPDX-License-Identifier: Apache-2.0
#include "core/exec/unit.hpp"

#include <algorithm>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/base/text.hpp"
#include "core/ops/attention.hpp"
#include "core/tensor/guard.hpp"
#include "core/tensor/handle.hpp"

namespace limbeck {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What a body is lent, and behind it what its operations need.
struct HostCall : lb_unit_call {
  at::TensorList weights;                             // of the unit, adapters behind
  const std::vector<GradSlot*>* gradients = nullptr;  // as many as weights, or none
  const UnitPlace* place = nullptr;

  static const HostCall& of(const lb_unit_call* call) {
    return *static_cast<const HostCall*>(call);
  }
  GradSlot* slot(lb_param param) const {
    return gradients == nullptr || param == LB_NO_PARAM ? nullptr : (*gradients)[param];
  }
  // The adapter of a weight that is reached through linear() only; others are merged already.
  const AdapterLayout* adapter(lb_param weight) const {
    if (place->uses_adapters && (*place->is_hidden)[weight]) {
      for (const auto& adapter : place->layout->adapters) {
        if (adapter.weight == weight) {
          return &adapter;
        }
      }
    }
    return nullptr;
  }
};

// scale (x A^T) B^T
at::Tensor adapted(const HostCall& host, const AdapterLayout& adapter, const at::Tensor& x) {
  const auto small = linear(x, host.weights[adapter.a], std::nullopt,
                            host.slot(static_cast<lb_param>(adapter.a)), nullptr);
  return linear(small * adapter.scale, host.weights[adapter.b], std::nullopt,
                host.slot(static_cast<lb_param>(adapter.b)), nullptr);
}

// A network that reads a weight itself is shown the one that the adapter makes of it.
std::vector<at::Tensor> merged_params(const UnitPlace& place, at::TensorList params) {
  std::vector<at::Tensor> merged;
  for (const auto& adapter : place.layout->adapters) {
    if ((*place.is_hidden)[adapter.weight]) {
      continue;
    }
    if (merged.empty()) {
      merged = params.vec();
    }
    const auto& weight = params[adapter.weight];
    merged[adapter.weight] =
        weight +
        (at::matmul(params[adapter.b], params[adapter.a]) * adapter.scale).to(weight.dtype());
  }
  return merged;
}

lb_status* ops_linear(const lb_unit_call* call,
                      lb_param weight,
                      lb_param bias,
                      lb_tensor* x,
                      lb_tensor** out) noexcept {
  return guarded([&] {
    const auto& host = HostCall::of(call);
    const auto& weights = host.weights;
    const bool has_bias = bias != LB_NO_PARAM;
    const size_t count = host.place->layout->declared;
    TORCH_CHECK(weight < count && (!has_bias || bias < count), "linear(): the unit has ", count,
                " parameters, got numbers ", weight, " and ", bias);
    auto y = linear(tensor_of(x), weights[weight],
                    has_bias ? std::optional(weights[bias]) : std::nullopt, host.slot(weight),
                    host.slot(bias));
    if (const auto* adapter = host.adapter(weight)) {
      y = y + adapted(host, *adapter, tensor_of(x));
    }
    *out = give(std::move(y));
  });
}

lb_status* ops_attend(const lb_unit_call* /*call*/,
                      const lb_attend* spec,
                      lb_tensor* const* in,
                      uint32_t n_in,
                      lb_tensor** out) noexcept {
  return guarded([&] {
    TORCH_CHECK(n_in == 3, "the host's attention takes q, k and v, got ", n_in, " operands");
    *out = give(attend(*spec, tensor_of(in[0]), tensor_of(in[1]), tensor_of(in[2])));
  });
}

const lb_ops kOps = {sizeof(lb_ops), 0, ops_linear, ops_attend};

// Enough for the inputs and parameters of a transformer block without an allocation.
using Handles = c10::SmallVector<lb_tensor*, 32>;
using Versions = c10::SmallVector<uint32_t, 8>;

Versions versions(at::ArrayRef<lb_tensor*> tensors) {
  Versions result;
  for (auto* handle : tensors) {
    const auto& tensor = tensor_of(handle);
    result.push_back(tensor.is_inference() ? 0 : tensor._version());
  }
  return result;
}

std::string title_of(const UnitPlace& place) {
  const auto& name = place.layout->name;
  return name.empty() ? "the root unit" : "unit '" + name + "'";
}

// The state of the CPU's default generator, for bodies with dropout.
class GeneratorState {
 public:
  static at::Tensor read() {
    auto generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    return generator.get_state();
  }
  // Sets a state for the life of this object; the one before comes back whatever happens.
  explicit GeneratorState(const at::Tensor& state) : before_(read()) { write(state); }
  ~GeneratorState() { write(before_); }
  GeneratorState(const GeneratorState&) = delete;
  GeneratorState& operator=(const GeneratorState&) = delete;

 private:
  static void write(const at::Tensor& state) {
    auto generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    generator.set_state(state);
  }
  at::Tensor before_;
};

// What backward needs to run a body again.
struct Repetition : torch::CustomClassHolder {
  Repetition(const lb_body& table, const UnitPlace& where) : body(table), place(where) {}
  Body body;
  UnitPlace place;
};

// Full recompute. Parameters are inputs of the node, so that gradients with respect to weights
// and inputs alike are asked of autograd in the ordinary way.
struct RecomputedUnit : torch::autograd::Function<RecomputedUnit> {
  static variable_list forward(AutogradContext* context,
                               at::TensorList all,
                               const c10::intrusive_ptr<Repetition>& repetition,
                               int64_t n_in,
                               int64_t n_out) {
    context->saved_data["repetition"] = c10::IValue::make_capsule(repetition);
    context->saved_data["n_in"] = n_in;
    context->saved_data["n_out"] = n_out;
    context->saved_data["generator"] = GeneratorState::read();
    context->set_materialize_grads(false);
    auto out = run(*repetition, all, n_in, n_out, false);
    context->save_for_backward(all.vec());
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grad_out) {
    const auto repetition = c10::static_intrusive_pointer_cast<Repetition>(
        context->saved_data["repetition"].toCapsule());
    const auto saved = context->get_saved_variables();
    variable_list inputs;
    variable_list wanted;
    std::vector<size_t> places;
    for (size_t i = 0; i < saved.size(); ++i) {
      auto input = saved[i].detach();
      if (context->needs_input_grad(i)) {
        input.set_requires_grad(true);
        wanted.push_back(input);
        places.push_back(i);
      }
      inputs.push_back(std::move(input));
    }
    variable_list out;
    {
      const at::AutoGradMode with_history(true);
      const GeneratorState as_before(context->saved_data["generator"].toTensor());
      out = run(*repetition, inputs, context->saved_data["n_in"].toInt(),
                context->saved_data["n_out"].toInt(), true);
    }
    variable_list outputs;
    variable_list seeds;
    for (size_t i = 0; i < out.size(); ++i) {
      if (grad_out[i].defined() && out[i].requires_grad()) {
        outputs.push_back(std::move(out[i]));
        seeds.push_back(grad_out[i]);
      }
    }
    variable_list result(saved.size() + 3);
    if (!outputs.empty() && !wanted.empty()) {
      auto grads = torch::autograd::grad(outputs, wanted, seeds, std::nullopt, false, true);
      for (size_t i = 0; i < places.size(); ++i) {
        result[places[i]] = std::move(grads[i]);
      }
    }
    return result;
  }

 private:
  static variable_list run(const Repetition& repetition,
                           at::TensorList all,
                           int64_t n_in,
                           int64_t n_out,
                           bool is_again) {
    const auto in = lend_all(all.slice(0, static_cast<size_t>(n_in)));
    Handles out(static_cast<size_t>(n_out), nullptr);
    // Gradients go through autograd: those that backward computes are of copies.
    auto place = repetition.place;
    place.slots = nullptr;
    repetition.body.run(place, in, all.slice(static_cast<size_t>(n_in)), out, is_again);
    variable_list results;
    for (auto* handle : out) {
      results.push_back(take(handle));
    }
    return results;
  }
};

}  // namespace

void Body::run(const UnitPlace& place,
               at::ArrayRef<lb_tensor*> in,
               at::TensorList given,
               std::span<lb_tensor*> out,
               bool is_again) const {
  const auto merged = place.uses_adapters ? merged_params(place, given) : std::vector<at::Tensor>();
  const auto params = merged.empty() ? given : at::TensorList(merged);
  Handles shown;
  for (size_t i = 0; i < place.layout->declared; ++i) {
    shown.push_back((*place.is_hidden)[i] || !params[i].defined() ? nullptr : lend(params[i]));
  }
  const auto before = versions(in);
  std::fill(out.begin(), out.end(), nullptr);
  HostCall call;
  static_cast<lb_unit_call&>(call) = {sizeof(lb_unit_call),
                                      is_again ? 1 : 0,
                                      shown.data(),
                                      static_cast<uint32_t>(shown.size()),
                                      static_cast<uint32_t>(in.size()),
                                      in.data(),
                                      out.data(),
                                      static_cast<uint32_t>(out.size()),
                                      0,
                                      nullptr,
                                      &kOps};
  call.weights = params;
  call.gradients = place.slots;
  call.place = &place;
  // The caller owns what stands in `out`, so nothing may stand there.
  const auto fail = [&](const Error& error) {
    for (auto*& handle : out) {
      discard(std::exchange(handle, nullptr));
    }
    throw error;
  };
  try {
    call_plugin([&] { return table_.run(table_.self, &call); },
                [&] { return "while running " + title_of(place); });
  } catch (const Error& error) {
    fail(error);
  }
  if (std::find(out.begin(), out.end(), nullptr) != out.end()) {
    fail(Error(Fault::kPlugin, cat("the body of ", title_of(place), " left an output empty")));
  }
  if (versions(in) != before) {
    fail(Error(Fault::kPlugin, cat("the body of ", title_of(place), " changed an input in place"),
               "a body runs again in backward: it must compute new tensors"));
  }
}

void run_unit(const UnitPlace& place,
              const lb_body& body,
              Recompute policy,
              at::ArrayRef<lb_tensor*> in,
              at::TensorList params,
              std::span<lb_tensor*> out) {
  if (policy == Recompute::kKeep || !at::GradMode::is_enabled()) {
    Body(body).run(place, in, params, out, false);
    return;
  }
  auto repetition = c10::make_intrusive<Repetition>(body, place);
  variable_list all;
  for (auto* handle : in) {
    all.push_back(tensor_of(handle));
  }
  all.insert(all.end(), params.begin(), params.end());
  auto results =
      RecomputedUnit::apply(at::TensorList(all), std::move(repetition),
                            static_cast<int64_t>(in.size()), static_cast<int64_t>(out.size()));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = give(std::move(results[i]));
  }
}

}  // namespace limbeck
