// SPDX-License-Identifier: Apache-2.0
// A role: a network of the run with its weights. Parameters belong to the host; a plugin sees
// them only inside a unit's body. What a role is for (trained, frozen, an average of another) is
// data of the manifest and the method; core code keys on these properties, never on names.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <limbeck/abi.h>

#include "core/dist/mesh.hpp"
#include "core/manifest/manifest.hpp"
#include "core/ops/linear.hpp"
#include "core/role/layout.hpp"
#include "core/tensor/batch.hpp"

namespace limbeck {

// Which of a role's weights a forward sees.
enum class Weights {
  kLive,      // with history, if grad mode is on and the role is trained
  kConstant,  // the live values without history
  kAverage,   // the moving average, without history
  kBase,      // the values below the adapters, without history
};

class Role {
 public:
  // Declares the network; allocates nothing, reads no weights. Throws Error. [control]
  Role(const RoleSpec& spec, const Mesh& mesh);
  ~Role();
  Role(const Role&) = delete;
  Role& operator=(const Role&) = delete;

  const RoleSpec& spec() const { return spec_; }
  const std::string& name() const { return spec_.name; }
  const lb_model_vtable& vtable() const { return vtable_; }
  void* self() const { return self_; }
  const lb_batch& facts() const { return facts_; }
  const RoleLayout& layout() const { return layout_; }
  bool is_trained() const { return spec_.is_trained; }
  bool has_average() const { return spec_.ema.has_value(); }
  bool has_adapters() const { return !spec_.adapters.empty(); }
  // The place of a part within names and folders: its own name; of the first part what the network
  // calls its folder, or "model".
  std::string part_name(size_t part) const;
  // What the component provides, and what the host adds ("limbeck.averaged/1").
  bool provides(std::string_view capability) const;
  at::ScalarType compute_type() const { return compute_type_; }
  at::ScalarType storage_type() const { return storage_type_; }

  // Allocates the buffers, with every parameter as its init expression says. The numbers are named
  // by the run's seed, the role's name and the parameter's key. [control]
  void allocate();
  // A parameter without history, over the role's memory.
  at::Tensor value_of(const ParamLayout& param, Weights weights) const;
  // Visits parameters and buffers that belong into a weights file, in declaration order, with
  // the key and a tensor of the parameter's shape, without history, over the role's memory. Not
  // adapters: they have files of their own.
  void visit(
      Weights weights,
      const std::function<void(const std::string& key, const at::Tensor& value)>& visitor) const;
  // Replaces live values from `init_from`; a folder of PEFT replaces the adapters. Missing,
  // unexpected and misshapen names are reported together as Error(kData). [control]
  void load(const std::filesystem::path& directory);
  // Replaces the adapters from the folders that the manifest names, if it does. [control]
  void load_adapters();
  // Takes over all weights and buffers of a role with the same layout. [control]
  void copy_weights(const Role& from);
  // Makes the average equal to the live weights.
  void reset_average();

  // The state that is no weight, by index of layout().params; undefined for weights.
  const std::vector<at::Tensor>& buffers() const { return buffers_; }
  // A hash of everything that training leaves alone: the weights that are not in master(), and of a
  // role that is not trained its buffers. [control]
  uint64_t frozen_hash() const;

  // One tensor per parameter of a unit, in declaration order, in storage dtype.
  const std::vector<at::Tensor>& params(lb_unit unit, Weights weights) const;

  // By parameter of a unit: whether its body reaches it through linear() only.
  const std::vector<bool>& hidden(lb_unit unit) const { return hidden_[unit]; }
  // By parameter of a unit: the dtype that its body sees. Empty if that is params()' for all.
  const std::vector<at::ScalarType>& compute_types(lb_unit unit) const {
    return compute_types_[unit];
  }

  // The flat master weights of a trained or shadow role, and of a trained one the gradient and the
  // moving average, all of layout().trained_size elements; the average is undefined without EMA.
  at::Tensor& master() { return master_; }
  at::Tensor& grad() { return grad_; }
  at::Tensor& average() { return average_; }
  // Where the gradients of a unit's linear layers go, by parameter; null for parameters whose
  // gradients go through autograd: all of them with recompute, or in another compute dtype.
  const std::vector<GradSlot*>& grad_slots(lb_unit unit) const { return slots_[unit]; }
  // Makes grad() complete: what nothing was accumulated into becomes zero. Before it is read.
  void settle_grad();
  // Makes the gradient zero for the next round, and forgets which parts were reached.
  void clear_grad();

  // Leaves with history, and for each part whether a gradient reached it since clear_grad().
  const std::vector<at::Tensor>& leaves() const { return leaves_; }
  bool is_touched(size_t part) const { return touched_[part]; }
  bool is_touched() const;

 private:
  using UnitParams = std::vector<std::vector<at::Tensor>>;  // [unit][param]

  at::Tensor view_of(const ParamLayout& param, const at::Tensor& trained) const;
  UnitParams views(const at::Tensor& trained) const;
  void make_leaves();
  void find_compute_types();
  GradSlot* make_slot(const ParamLayout& param, const at::Tensor& grad);

  RoleSpec spec_;
  Mesh mesh_;
  const lb_model_vtable& vtable_;
  void* self_ = nullptr;
  RoleLayout layout_;
  lb_batch facts_;
  at::ScalarType storage_type_;
  at::ScalarType compute_type_;

  std::vector<std::vector<bool>> hidden_;
  std::vector<std::vector<at::ScalarType>> compute_types_;

  at::Tensor master_;
  at::Tensor grad_;
  at::Tensor average_;
  at::Tensor frozen_;
  at::Tensor frozen_wide_;
  std::vector<at::Tensor> buffers_;  // by index of param; undefined for others
  UnitParams live_;
  UnitParams constant_;
  UnitParams averaged_;
  std::vector<at::Tensor> leaves_;
  std::vector<at::Tensor> accumulated_;        // gradients that autograd adds to
  std::deque<GradSlot> slot_store_;            // elements never move
  std::vector<std::vector<GradSlot*>> slots_;  // [unit][param]
  std::unique_ptr<bool[]> touched_;
};

// The dtype a CPU computes a role in, and why, if it is not the one asked for: 16-bit products on
// a CPU without native bf16 are about a hundred times slower than fp32 ones.
at::ScalarType compute_type_of(const RoleSpec& spec, bool has_native_bf16);
bool cpu_has_native_bf16();

}  // namespace limbeck
