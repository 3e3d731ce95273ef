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
  Weights weights = Weights::kLive;
  bool has_history = false;
  bool is_in_body = false;

  static Forward& of(const lb_units* units) { return *static_cast<Forward*>(units->ctx); }

  // Runs `work` with the unit's parameters in compute dtype. The cast is differentiable.
  template <class Work>
  void with_params(lb_unit unit, const Work& work) const {
    const auto& stored = role.params(unit, weights);
    const auto& types = role.compute_types(unit);
    if (types.empty()) {
      work(stored);
      return;
    }
    std::vector<at::Tensor> params;
    for (size_t i = 0; i < stored.size(); ++i) {
      params.push_back(stored[i].to(types[i]));
    }
    work(params);
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
  // Taken over by run_unit(), or released here.
  struct Taken {
    const lb_body* body;
    ~Taken() {
      if (body != nullptr && body->release != nullptr) {
        body->release(body->self);
      }
    }
  } taken{table};
  return guarded([&] {
    TORCH_CHECK(unit < layout.units.size(), "run(): there is no unit number ", unit);
    const auto& name = layout.units[unit].name;
    TORCH_CHECK(!forward.is_in_body, "unit '", name,
                "' was started inside another unit's body; units do not nest");
    for (uint32_t i = 0; i < n_in; ++i) {
      TORCH_CHECK(in[i] != nullptr && tensor_of(in[i]).defined(), "input ", i, " of unit '", name,
                  "' is missing; pass an empty tensor for an absent one");
    }
    UnitPlace place;
    place.layout = &layout.units[unit];
    place.uses_adapters = forward.weights != Weights::kBase && !place.layout->adapters.empty();
    place.is_hidden = &forward.role.hidden(unit);
    if (forward.weights == Weights::kLive && forward.role.is_trained()) {
      place.slots = &forward.role.grad_slots(unit);
    }
    struct InBody {
      bool& flag;
      explicit InBody(bool& to) : flag(to) { flag = true; }
      ~InBody() { flag = false; }
      InBody(const InBody&) = delete;
      InBody& operator=(const InBody&) = delete;
    } const in_body(forward.is_in_body);
    forward.with_params(unit, [&](at::TensorList params) {
      taken.body = nullptr;
      run_unit(place, *table, forward.role.spec().recompute, {in, n_in}, params, {out, n_out});
    });
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
  if ((flags & LB_RUN_BASE) != 0) {
    if (!role.has_adapters()) {
      throw Error(Fault::kPlugin,
                  cat("role '", role.name(),
                      "' was asked for its weights below adapters and has no "
                      "adapters"),
                  "ask for the capability limbeck.adapters/1 first, or set lora.enable = true");
    }
    return Weights::kBase;
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
    throw Error(
        Fault::kPlugin,
        cat("run flags ", flags, " have bits that this limbeck does not know: ", flags & ~kKnown));
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
    call_plugin([&] { return role.vtable().forward(role.self(), &units, &in, &filled); },
                [] { return std::string(); });
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
