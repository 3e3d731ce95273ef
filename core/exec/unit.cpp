// SPDX-License-Identifier: Apache-2.0
#include "core/exec/unit.hpp"

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
  const std::vector<at::Tensor>* weights = nullptr;
  const std::vector<GradSlot*>* slots = nullptr;  // as many as weights, or none
};

const std::vector<at::Tensor>& weights_of(const lb_unit_call* call) {
  return *static_cast<const HostCall*>(call)->weights;
}

lb_status* ops_linear(const lb_unit_call* call,
                      lb_param weight,
                      lb_param bias,
                      lb_tensor* x,
                      lb_tensor** out) noexcept {
  return guarded([&] {
    const auto& weights = weights_of(call);
    TORCH_CHECK(weight < weights.size() && (bias == LB_NO_PARAM || bias < weights.size()),
                "linear(): the unit has ", weights.size(), " parameters, got numbers ", weight,
                " and ", bias);
    const auto& slots = *static_cast<const HostCall*>(call)->slots;
    const bool has_bias = bias != LB_NO_PARAM;
    *out = give(linear(tensor_of(x), weights[weight],
                       has_bias ? std::optional(weights[bias]) : std::nullopt,
                       slots.empty() ? nullptr : slots[weight],
                       slots.empty() || !has_bias ? nullptr : slots[bias]));
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

std::vector<uint32_t> versions(at::TensorList tensors) {
  std::vector<uint32_t> result;
  for (const auto& tensor : tensors) {
    result.push_back(tensor.is_inference() ? 0 : tensor._version());
  }
  return result;
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

struct WorkHolder : torch::CustomClassHolder {
  explicit WorkHolder(std::shared_ptr<const UnitWork> taken) : work(std::move(taken)) {}
  std::shared_ptr<const UnitWork> work;
};

// Full recompute. Parameters are inputs of the node, so that gradients with respect to weights
// and inputs alike are asked of autograd in the ordinary way.
struct RecomputedUnit : torch::autograd::Function<RecomputedUnit> {
  static variable_list forward(AutogradContext* context,
                               at::TensorList all,
                               c10::intrusive_ptr<WorkHolder> holder,
                               int64_t n_in) {
    context->saved_data["work"] = c10::IValue::make_capsule(holder);
    context->saved_data["n_in"] = n_in;
    context->saved_data["generator"] = GeneratorState::read();
    context->set_materialize_grads(false);
    const auto [in, params] = split(all, n_in);
    const auto& work = *holder->work;
    auto out = work.body->run(in, params, work.is_hidden, {}, work.n_out, false);
    context->save_for_backward(all.vec());
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grad_out) {
    const auto holder =
        c10::static_intrusive_pointer_cast<WorkHolder>(context->saved_data["work"].toCapsule());
    const auto& work = *holder->work;
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
    const auto [in, params] = split(inputs, context->saved_data["n_in"].toInt());
    variable_list out;
    {
      const at::AutoGradMode with_history(true);
      const GeneratorState as_before(context->saved_data["generator"].toTensor());
      out = work.body->run(in, params, work.is_hidden, {}, work.n_out, true);
    }
    variable_list outputs;
    variable_list seeds;
    for (size_t i = 0; i < out.size(); ++i) {
      if (grad_out[i].defined() && out[i].requires_grad()) {
        outputs.push_back(std::move(out[i]));
        seeds.push_back(grad_out[i]);
      }
    }
    variable_list result(saved.size() + 2);
    if (!outputs.empty() && !wanted.empty()) {
      auto grads = torch::autograd::grad(outputs, wanted, seeds, std::nullopt, false, true);
      for (size_t i = 0; i < places.size(); ++i) {
        result[places[i]] = std::move(grads[i]);
      }
    }
    return result;
  }

 private:
  static std::pair<variable_list, variable_list> split(at::TensorList all, int64_t n_in) {
    const auto middle = all.begin() + n_in;
    return {variable_list(all.begin(), middle), variable_list(middle, all.end())};
  }
};

}  // namespace

std::vector<at::Tensor> Body::run(at::TensorList in,
                                  const std::vector<at::Tensor>& params,
                                  const std::vector<bool>& is_hidden,
                                  const std::vector<GradSlot*>& slots,
                                  uint32_t n_out,
                                  bool is_again) const {
  auto shown = lend_all(params);
  for (size_t i = 0; i < shown.size(); ++i) {
    if (is_hidden[i]) {
      shown[i] = nullptr;
    }
  }
  const auto inputs = lend_all(in);
  const auto before = versions(in);
  std::vector<lb_tensor*> results(n_out, nullptr);
  HostCall call;
  static_cast<lb_unit_call&>(call) = {sizeof(lb_unit_call),
                                      is_again ? 1 : 0,
                                      shown.data(),
                                      static_cast<uint32_t>(shown.size()),
                                      static_cast<uint32_t>(inputs.size()),
                                      inputs.data(),
                                      results.data(),
                                      n_out,
                                      0,
                                      nullptr,
                                      &kOps};
  call.weights = &params;
  call.slots = &slots;
  const auto where = [this] { return unit_.empty() ? "the root unit" : "unit '" + unit_ + "'"; };
  if (auto* status = table_.run(table_.self, &call)) {
    check(status, "while running " + where());
  }
  std::vector<at::Tensor> out;
  for (auto* result : results) {
    if (result == nullptr) {
      throw Error(Fault::kPlugin, cat("the body of ", where(), " left an output empty"));
    }
    out.push_back(take(result));
  }
  if (versions(in) != before) {
    throw Error(Fault::kPlugin, cat("the body of ", where(), " changed an input in place"),
                "a body runs again in backward: it must compute new tensors");
  }
  return out;
}

std::vector<at::Tensor> run_unit(const std::shared_ptr<const UnitWork>& work,
                                 Recompute policy,
                                 const std::vector<at::Tensor>& in,
                                 const std::vector<at::Tensor>& params) {
  if (policy == Recompute::kKeep || !at::GradMode::is_enabled()) {
    return work->body->run(in, params, work->is_hidden, work->slots, work->n_out, false);
  }
  variable_list all(in);
  all.insert(all.end(), params.begin(), params.end());
  return RecomputedUnit::apply(at::TensorList(all), c10::make_intrusive<WorkHolder>(work),
                               static_cast<int64_t>(in.size()));
}

}  // namespace limbeck
