// SPDX-License-Identifier: Apache-2.0
#include "core/exec/forward.hpp"

#include <memory>
#include <vector>

#include "core/base/profile.hpp"
#include "core/base/text.hpp"
#include "core/exec/unit.hpp"
#include "core/tensor/guard.hpp"
#include "core/tensor/handle.hpp"
#include "core/track/forward_work.hpp"

namespace limbeck {
namespace {

// The state behind the lb_units of one forward.
struct Forward {
  Role& role;
  Weights weights;
  bool has_history;
  bool is_in_body = false;

  static Forward& of(const lb_units* units) { return *static_cast<Forward*>(units->ctx); }

  // The unit's parameters in compute dtype. The cast is differentiable.
  std::vector<at::Tensor> params_of(lb_unit unit) const {
    auto params = role.params(unit, weights);
    const auto& indices = role.layout().units[unit].params;
    for (size_t i = 0; i < params.size(); ++i) {
      const auto& layout = role.layout().params[indices[i]];
      const bool stays = (layout.flags & LB_PARAM_KEEP_F32) != 0 || layout.store == Store::kBuffer;
      const auto type = stays && role.compute_type() != at::kDouble ? params[i].scalar_type()
                                                                    : role.compute_type();
      if (at::isFloatingType(params[i].scalar_type())) {
        params[i] = params[i].to(type);
      }
    }
    return params;
  }

  std::vector<bool> hidden_of(lb_unit unit) const {
    std::vector<bool> hidden;
    for (const size_t index : role.layout().units[unit].params) {
      hidden.push_back((role.layout().params[index].flags & LB_PARAM_VIA_LINEAR) != 0);
    }
    return hidden;
  }
};

lb_status* units_run(const lb_units* units,
                     lb_unit unit,
                     const lb_body* table,
                     lb_tensor* const* in,
                     uint32_t n_in,
                     lb_tensor** out,
                     uint32_t n_out) noexcept {
  auto& forward = Forward::of(units);
  const auto& layout = forward.role.layout();
  const bool exists = unit < layout.units.size();
  // Takes the body over before anything can fail.
  auto body = std::make_shared<const Body>(*table, exists ? layout.units[unit].name : "?");
  return guarded([&] {
    TORCH_CHECK(exists, "run(): there is no unit number ", unit);
    TORCH_CHECK(!forward.is_in_body, "unit '", layout.units[unit].name,
                "' was started inside another unit's body; units do not nest");
    std::vector<at::Tensor> inputs;
    for (uint32_t i = 0; i < n_in; ++i) {
      TORCH_CHECK(in[i] != nullptr && tensor_of(in[i]).defined(), "input ", i, " of unit '",
                  layout.units[unit].name, "' is missing; pass an empty tensor for an absent one");
      inputs.push_back(tensor_of(in[i]));
    }
    auto work = std::make_shared<UnitWork>();
    work->body = std::move(body);
    work->is_hidden = forward.hidden_of(unit);
    if (forward.weights == Weights::kLive && forward.role.is_trained()) {
      work->slots = forward.role.grad_slots(unit);
    }
    work->n_out = n_out;
    struct InBody {
      bool& flag;
      explicit InBody(bool& to) : flag(to) { flag = true; }
      ~InBody() { flag = false; }
      InBody(const InBody&) = delete;
      InBody& operator=(const InBody&) = delete;
    } const in_body(forward.is_in_body);
    auto results = run_unit(work, forward.role.spec().recompute, inputs, forward.params_of(unit));
    for (uint32_t i = 0; i < n_out; ++i) {
      out[i] = give(std::move(results[i]));
    }
  });
}

// Sequence parallelism with one rank: nothing to cut, nothing to join.
lb_status* units_split(const lb_units* /*units*/,
                       lb_tensor* whole,
                       uint32_t /*dim*/,
                       lb_tensor** out) noexcept {
  return guarded([&] { *out = give(tensor_of(whole)); });
}
lb_status* units_join(const lb_units* /*units*/,
                      lb_tensor* part,
                      uint32_t /*dim*/,
                      int64_t /*size*/,
                      lb_tensor** out) noexcept {
  return guarded([&] { *out = give(tensor_of(part)); });
}

Weights weights_for(const Role& role, uint32_t flags) {
  if ((flags & LB_RUN_AVERAGED) != 0) {
    if (!role.has_average()) {
      throw Error(Fault::kPlugin,
                  cat("role '", role.name(), "' was asked for averaged weights and has none"),
                  "ask for the capability limbeck.averaged/1 first, or give the role an ema table");
    }
    return Weights::kAverage;
  }
  return (flags & LB_RUN_INPUT_GRAD) != 0 ? Weights::kConstant : Weights::kLive;
}

ForwardMode mode_of(const Role& role, uint32_t flags, bool has_gradient) {
  const bool is_live = (flags & LB_RUN_INPUT_GRAD) == 0;
  return {has_gradient, role.is_trained() && is_live, role.spec().recompute == Recompute::kFull};
}

}  // namespace

void run_forward(Role& role, uint32_t flags, const lb_batch& in, lb_batch& out) {
  constexpr uint32_t kKnown = LB_RUN_NO_GRAD | LB_RUN_AVERAGED | LB_RUN_BASE | LB_RUN_INPUT_GRAD;
  constexpr uint32_t kQuiet = LB_RUN_NO_GRAD | LB_RUN_AVERAGED | LB_RUN_BASE;
  if ((flags & ~kKnown) != 0) {
    throw Error(Fault::kPlugin, cat("run flags ", flags,
                                    " have bits that this limbeck does not "
                                    "know: ",
                                    flags & ~kKnown));
  }
  const bool may_record =
      (flags & kQuiet) == 0 && (role.is_trained() || (flags & LB_RUN_INPUT_GRAD) != 0);
  const profile::Timed timed(profile::Part::kForward, role.name());
  try {
    Forward forward{role, weights_for(role, flags), may_record && at::GradMode::is_enabled()};
    const at::AutoGradMode grad_mode(forward.has_history);
    const lb_units units = {
        sizeof(lb_units), flags,     dtype_of(role.compute_type()), 0, &forward, units_run,
        units_split,      units_join};
    lb_batch filled;
    check(role.vtable().forward(role.self(), &units, &in, &filled));
    count_forward(role.name(), take_work(filled), mode_of(role, flags, has_history(filled)));
    for (auto& [name, entry] : filled.entries) {
      out.put(name, std::move(entry));
    }
  } catch (const Error& error) {
    throw error.with(cat("while running role '", role.name(), "' (network '",
                         role.spec().model.component->name(), "')"));
  }
}

}  // namespace limbeck
