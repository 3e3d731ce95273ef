// SPDX-License-Identifier: Apache-2.0
// Autograd for the fused operators: a node that keeps inputs and results and calls a hand-written
// backward, as libtorch's own operators do.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

namespace limbeck {

// `Op` is a copyable struct of constants with
//   variable_list forward(const variable_list& in, variable_list& extra) const
//     the outputs; `extra` takes tensors that backward needs beside inputs and outputs. No history.
//   variable_list backward(const variable_list& in, const variable_list& out,
//                          const variable_list& extra, const variable_list& grads,
//                          const std::vector<bool>& needs) const
//     one gradient per input, undefined where not needed. `out` holds only the outputs that
//     `saves_output(i)` keeps.
//   variable_list composite(const variable_list& in) const
//     the same outputs from ATen operators: for differentiating twice, other devices and dtypes.
//   static bool saves_output(size_t i)
// Undefined inputs are absent ones.
template <class Op>
class OpNode final : public torch::autograd::Node {
 public:
  using variable_list = torch::autograd::variable_list;

  explicit OpNode(const Op& op) : op_(op) {}

  static variable_list apply(const Op& op, const variable_list& in) {
    bool records = false;
    if (at::GradMode::is_enabled()) {
      for (const auto& tensor : in) {
        records = records || (tensor.defined() && tensor.requires_grad());
      }
    }
    variable_list extra;
    if (!records) {
      const at::AutoDispatchBelowADInplaceOrView below;
      return op.forward(in, extra);
    }
    auto node = std::shared_ptr<OpNode>(new OpNode(op), torch::autograd::deleteNode);
    node->set_next_edges(torch::autograd::collect_next_edges(in));
    for (const auto& tensor : in) {
      node->inputs_.emplace_back(tensor, false);
    }
    variable_list out;
    {
      const at::AutoDispatchBelowADInplaceOrView below;
      out = op.forward(in, extra);
    }
    for (const auto& tensor : out) {
      torch::autograd::set_history(tensor, node);
    }
    for (size_t i = 0; i < out.size(); ++i) {
      node->outputs_.emplace_back(Op::saves_output(i) ? out[i] : at::Tensor(), true);
    }
    for (auto& tensor : extra) {
      node->extra_.emplace_back(std::move(tensor), false);
    }
    return out;
  }

  std::string name() const override { return Op::name(); }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto* list : {&inputs_, &outputs_, &extra_}) {
      for (auto& saved : *list) {
        saved.reset_data();
      }
    }
  }

 private:
  variable_list unpack(const std::vector<torch::autograd::SavedVariable>& list) {
    variable_list tensors;
    tensors.reserve(list.size());
    for (const auto& saved : list) {
      tensors.push_back(saved.unpack(getptr()));
    }
    return tensors;
  }

  variable_list apply(variable_list&& grads) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto in = unpack(inputs_);
    std::vector<bool> needs(in.size());
    for (size_t i = 0; i < in.size(); ++i) {
      needs[i] = task_should_compute_output(i);
    }
    if (at::GradMode::is_enabled()) {
      return differentiate_composite(in, grads, needs);
    }
    return op_.backward(in, unpack(outputs_), unpack(extra_), grads, needs);
  }

  // With a graph of its own, for second derivatives. Inputs may depend on each other; through
  // aliases each gradient is that of this operator alone.
  variable_list differentiate_composite(const variable_list& in,
                                        const variable_list& grads,
                                        const std::vector<bool>& needs) const {
    variable_list aliases;
    for (const auto& tensor : in) {
      aliases.push_back(tensor.defined() ? at::alias(tensor) : tensor);
    }
    const auto out = op_.composite(aliases);
    variable_list outputs;
    variable_list seeds;
    for (size_t i = 0; i < out.size(); ++i) {
      if (grads[i].defined()) {
        outputs.push_back(out[i]);
        seeds.push_back(grads[i]);
      }
    }
    variable_list wanted;
    for (size_t i = 0; i < in.size(); ++i) {
      if (needs[i]) {
        wanted.push_back(aliases[i]);
      }
    }
    variable_list result(in.size());
    if (outputs.empty() || wanted.empty()) {
      return result;
    }
    auto found = torch::autograd::grad(outputs, wanted, seeds, std::nullopt, true, true);
    for (size_t i = 0, next = 0; i < in.size(); ++i) {
      if (needs[i]) {
        result[i] = std::move(found[next++]);
      }
    }
    return result;
  }

  Op op_;
  std::vector<torch::autograd::SavedVariable> inputs_;
  std::vector<torch::autograd::SavedVariable> outputs_;
  std::vector<torch::autograd::SavedVariable> extra_;
};

}  // namespace limbeck
