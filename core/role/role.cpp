// SPDX-License-Identifier: Apache-2.0
#include "core/role/role.hpp"

#include <utility>

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "core/base/hash.hpp"
#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/state.hpp"
#include "core/plugin/status.hpp"
#include "core/role/adapters.hpp"
#include "core/role/builder.hpp"
#include "core/role/init.hpp"
#include "core/role/load.hpp"
#include "core/tensor/handle.hpp"
#include "core/tensor/random.hpp"
#include "core/tensor/tensor_api.hpp"

namespace limbeck {
namespace {

at::ScalarType type_of(Precision precision) {
  switch (precision) {
    case Precision::kBFloat16:
      return at::kBFloat16;
    case Precision::kFloat64:
      return at::kDouble;
    case Precision::kFloat32:
      break;
  }
  return at::kFloat;
}

// A hash made of two; fold_hash(a, b) and fold_hash(b, a) differ.
uint64_t fold_hash(uint64_t a, uint64_t b) { return splitmix64(splitmix64(a) ^ b); }

// Runs after a gradient was added to a leaf.
class TouchHook : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit TouchHook(bool* touched) : touched_(touched) {}
  void operator()(const torch::autograd::Variable& /*leaf*/) override { *touched_ = true; }

 private:
  bool* touched_;
};

}  // namespace

bool cpu_has_native_bf16() { return __builtin_cpu_supports("avx512bf16") != 0; }

at::ScalarType compute_type_of(const RoleSpec& spec, bool has_native_bf16) {
  if (spec.compute_dtype.has_value()) {
    return type_of(*spec.compute_dtype);
  }
  const auto asked = type_of(spec.dtype);
  return asked == at::kBFloat16 && !run_device().is_cuda() && !has_native_bf16 ? at::kFloat : asked;
}

Role::Role(const RoleSpec& spec, const Mesh& mesh)
    : spec_(spec),
      mesh_(mesh),
      vtable_(spec.model.component->vtable<lb_model_vtable>()),
      storage_type_(type_of(spec.dtype)),
      compute_type_(compute_type_of(spec, cpu_has_native_bf16())) {
  if (storage_type_ == at::kBFloat16 && compute_type_ == at::kFloat) {
    log::info("role", cat("'", name(),
                          "' is stored in bf16 and computed in fp32: this CPU has no "
                          "native bf16 products"));
  }
  const std::string frame =
      cat("while building role '", name(), "' (network '", spec_.model.component->name(), "')");
  try {
    layout_ = declare_network(vtable_, spec_.model.component->library->state, *spec_.model.config,
                              spec_.init_from, &self_);
    if (LB_CAN(&vtable_, describe)) {
      check(vtable_.describe(self_, &facts_));
    }
    const auto* targets = facts_.find<TextRows>("adapter.targets");
    add_adapters(layout_, spec_, targets == nullptr ? TextRows() : *targets);
    LayoutOptions options;
    options.trains_adapters = has_adapters();
    options.is_trained = spec_.is_trained || spec_.is_shadow;
    options.decays_flagged = spec_.optimizer.decays_flagged;
    options.is_16_bit = storage_type_ == at::kBFloat16;
    options.mesh = mesh_;
    place_params(layout_, options);
  } catch (const Error& error) {
    if (self_ != nullptr) {
      vtable_.destroy(self_);
    }
    throw error.with(frame);
  }
  touched_ = std::make_unique<bool[]>(layout_.parts.size());
}

Role::~Role() {
  if (self_ != nullptr) {
    vtable_.destroy(self_);
  }
}

bool Role::provides(std::string_view capability) const {
  return spec_.model.component->provides(capability) ||
         (capability == "limbeck.averaged/1" && has_average()) ||
         (capability == "limbeck.adapters/1" && has_adapters());
}

void Role::allocate() {
  const at::NoGradGuard no_grad;
  const auto master_type = storage_type_ == at::kDouble ? at::kDouble : at::kFloat;
  const auto zeros = [](int64_t size, at::ScalarType type) {
    return at::zeros({size}, at::TensorOptions().dtype(type).device(run_device()));
  };
  // The whole range in a world of one; a rank's part otherwise.
  master_ = zeros(mesh_.part(layout_.trained_size), master_type);
  grad_ = zeros(spec_.is_trained ? mesh_.part(layout_.trained_size) : 0, master_type);
  frozen_ = zeros(layout_.frozen_size, storage_type_);
  frozen_wide_ = zeros(layout_.frozen_wide_size, at::kFloat);
  buffers_.assign(layout_.params.size(), at::Tensor());
  for (size_t i = 0; i < layout_.params.size(); ++i) {
    const auto& param = layout_.params[i];
    if (param.store == Store::kBuffer) {
      buffers_[i] = at::zeros(
          param.shape, at::TensorOptions().dtype(scalar_type(param.dtype)).device(run_device()));
    }
    auto value = view_of(param, master_);
    const std::string purpose = cat("init.", name(), ".", param.part, ".", param.key);
    const lb_key key = {sizeof(lb_key), LB_CONTROL, purpose.c_str(), 0, 0, 0};
    init_param(value, param.init, fold_key(key));
  }
  live_ = views(master_);
  constant_ = live_;
  if (spec_.is_trained) {
    make_leaves();
  }
  if (has_average()) {
    average_ = master_.to(master_type).clone();
    averaged_ = views(average_);
  }
  find_compute_types();
}

void Role::find_compute_types() {
  for (size_t u = 0; u < layout_.units.size(); ++u) {
    auto& types = compute_types_.emplace_back();
    auto& hidden = hidden_.emplace_back();
    bool is_stored_so = true;
    for (size_t p = 0; p < live_[u].size(); ++p) {
      const auto& param = layout_.params[layout_.units[u].params[p]];
      hidden.push_back((param.flags & LB_PARAM_VIA_LINEAR) != 0);
      const auto stored = live_[u][p].scalar_type();
      const bool stays =
          !at::isFloatingType(stored) ||
          (((param.flags & LB_PARAM_KEEP_F32) != 0 || param.store == Store::kBuffer) &&
           compute_type_ != at::kDouble);
      types.push_back(stays ? stored : compute_type_);
      is_stored_so = is_stored_so && types.back() == stored;
    }
    if (is_stored_so) {
      types.clear();
    }
  }
}

at::Tensor Role::view_of(const ParamLayout& param, const at::Tensor& trained) const {
  switch (param.store) {
    case Store::kTrained:
      return trained.narrow(0, param.offset, param.numel).view(param.shape);
    case Store::kFrozen:
      return frozen_.narrow(0, param.offset, param.numel).view(param.shape);
    case Store::kFrozenWide:
      return frozen_wide_.narrow(0, param.offset, param.numel).view(param.shape);
    case Store::kBuffer:
      break;
  }
  return buffers_[static_cast<size_t>(&param - layout_.params.data())];
}

Role::UnitParams Role::views(const at::Tensor& trained) const {
  UnitParams result;
  for (const auto& unit : layout_.units) {
    auto& list = result.emplace_back();
    for (const size_t index : unit.params) {
      list.push_back(view_of(layout_.params[index], trained).detach());
    }
  }
  return result;
}

// Gradients of parameters in the dtype of the master weights may go past autograd. Linear weights
// that bodies reach through the host only belong to their slot alone. Recompute differentiates
// copies of the parameters instead.
GradSlot* Role::make_slot(const ParamLayout& param, const at::Tensor& grad) {
  if (spec_.recompute != Recompute::kKeep || compute_type_ != master_.scalar_type()) {
    return nullptr;
  }
  constexpr uint32_t kThroughHost = LB_PARAM_LINEAR | LB_PARAM_VIA_LINEAR;
  GradSlot slot;
  slot.grad = grad;
  slot.is_exclusive = (param.flags & kThroughHost) == kThroughHost && param.shape.size() == 2;
  slot.is_fresh = slot.is_exclusive;
  slot.touched = &touched_[param.part];
  slot_store_.push_back(slot);
  return &slot_store_.back();
}

void Role::make_leaves() {
  slots_.resize(layout_.units.size());
  for (size_t u = 0; u < layout_.units.size(); ++u) {
    slots_[u].resize(live_[u].size(), nullptr);
    for (size_t p = 0; p < live_[u].size(); ++p) {
      const auto& param = layout_.params[layout_.units[u].params[p]];
      if (param.store != Store::kTrained) {
        continue;
      }
      // A detached view shares memory and version counter with the master buffer: changing
      // weights between forward and backward is noticed, and gradients land in the flat buffer.
      auto leaf = view_of(param, master_).detach().set_requires_grad(true);
      leaf.mutable_grad() = grad_.narrow(0, param.offset, param.numel).view(param.shape);
      torch::autograd::impl::set_post_acc_grad_hooks(
          leaf, std::make_unique<TouchHook>(&touched_[param.part]));
      live_[u][p] = leaf;
      leaves_.push_back(leaf);
      slots_[u][p] = make_slot(param, leaf.grad());
      if (slots_[u][p] == nullptr || !slots_[u][p]->is_exclusive) {
        accumulated_.push_back(leaf.grad());
      }
    }
  }
}

const std::vector<at::Tensor>& Role::params(lb_unit unit, Weights weights) const {
  switch (weights) {
    case Weights::kLive:
      return live_[unit];
    case Weights::kConstant:
    case Weights::kBase:
      return constant_[unit];
    case Weights::kAverage:
      break;
  }
  return averaged_[unit];
}

void Role::visit(
    Weights weights,
    const std::function<void(const std::string& key, const at::Tensor& value)>& visitor) const {
  for (const auto& param : layout_.params) {
    if (!param.is_adapter) {
      visitor(param.key, value_of(param, weights));
    }
  }
}

at::Tensor Role::value_of(const ParamLayout& param, Weights weights) const {
  return view_of(param, weights == Weights::kAverage ? average_ : master_).detach();
}

std::string Role::part_name(size_t part) const {
  if (!layout_.parts[part].name.empty()) {
    return layout_.parts[part].name;
  }
  const auto* folder = facts_.find<TextRows>("export.folder");
  return folder == nullptr || folder->empty() || folder->front().empty() ? "model"
                                                                         : folder->front();
}

void Role::load_adapters() {
  try {
    for (size_t part = 0; part < spec_.adapters.size(); ++part) {
      if (!spec_.adapters[part].folder.empty()) {
        read_adapters(*this, part, spec_.adapters[part].folder);
      }
    }
  } catch (const Error& error) {
    throw error.with(cat("while loading the adapters of role '", name(), "'"));
  }
  reset_average();
}

void Role::load(const std::filesystem::path& directory) {
  const at::NoGradGuard no_grad;
  const auto translate = [this](const std::string& key) -> std::string {
    char renamed[512];
    if (!LB_CAN(&vtable_, rename)) {
      return key;
    }
    const int32_t length = vtable_.rename(self_, key.c_str(), renamed, sizeof(renamed));
    return length > 0 && static_cast<size_t>(length) < sizeof(renamed)
               ? std::string(renamed, static_cast<size_t>(length))
               : key;
  };
  try {
    if (has_adapters() && is_adapter_folder(directory)) {
      read_adapters(*this, 0, directory);
      reset_average();
      return;
    }
    std::vector<WeightTarget> targets;
    for (const auto& param : layout_.params) {
      if (param.is_adapter) {
        continue;
      }
      targets.push_back(
          {param.key, view_of(param, master_), (param.flags & LB_PARAM_OPTIONAL) != 0});
    }
    const auto* folder = facts_.find<TextRows>("export.folder");
    load_weights(directory, folder != nullptr ? folder->at(0) : "", targets, translate);
  } catch (const Error& error) {
    throw error.with(cat("while loading the weights of role '", name(), "'"));
  }
  reset_average();
}

void Role::copy_weights(const Role& from) {
  const at::NoGradGuard no_grad;
  master_.copy_(from.master_);
  frozen_.copy_(from.frozen_);
  frozen_wide_.copy_(from.frozen_wide_);
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i].defined()) {
      buffers_[i].copy_(from.buffers_[i]);
    }
  }
}

void Role::reset_average() {
  const at::NoGradGuard no_grad;
  if (average_.defined()) {
    average_.copy_(master_);
  }
}

uint64_t Role::frozen_hash() const {
  uint64_t hash = fold_hash(hash_of(frozen_), hash_of(frozen_wide_));
  for (const auto& buffer : buffers_) {
    if (buffer.defined() && !spec_.is_trained && !spec_.is_shadow) {
      hash = fold_hash(hash, hash_of(buffer));
    }
  }
  return hash;
}

bool Role::is_touched() const {
  for (size_t part = 0; part < layout_.parts.size(); ++part) {
    if (touched_[part]) {
      return true;
    }
  }
  return false;
}

void Role::settle_grad() {
  const at::NoGradGuard no_grad;
  for (auto& slot : slot_store_) {
    if (slot.is_fresh) {
      slot.grad.zero_();
    }
  }
}

void Role::clear_grad() {
  const at::NoGradGuard no_grad;
  if (!accumulated_.empty()) {
    at::_foreach_zero_(accumulated_);
  }
  for (auto& slot : slot_store_) {
    slot.is_fresh = slot.is_exclusive;
  }
  std::fill_n(touched_.get(), layout_.parts.size(), false);
}

}  // namespace limbeck
