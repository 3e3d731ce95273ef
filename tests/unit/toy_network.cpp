// SPDX-License-Identifier: Apache-2.0
#include "toy_network.hpp"

#include <memory>
#include <utility>

#include <ATen/ATen.h>

#include "core/plugin/status.hpp"
#include "core/tensor/batch.hpp"
#include "core/tensor/guard.hpp"
#include "core/tensor/handle.hpp"

namespace limbeck::testing {
namespace {

int live = 0;
int runs = 0;

struct Toy {
  ToyOptions options;
  lb_unit second = 0;
  lb_param w1 = 0;
  lb_param b1 = 0;
  lb_param w2 = 0;
};

struct ToyBody {
  const Toy* toy;
  const lb_units* units;
};

template <class Run>
lb_body make_body(const Toy* toy, const lb_units* units, Run run) {
  ++live;
  return {run, new ToyBody{toy, units}, [](void* self) {
            --live;
            delete static_cast<ToyBody*>(self);
          }};
}

lb_status* run_second(void* self, const lb_unit_call* call) {
  return guarded([&] {
    ++runs;
    const auto& body = *static_cast<ToyBody*>(self);
    if (body.toy->options.writes_input) {
      tensor_of(call->in[0]).add_(1);
    }
    check(call->ops->linear(call, body.toy->w2, LB_NO_PARAM, call->in[0], &call->out[0]));
  });
}

lb_status* run_first(void* self, const lb_unit_call* call) {
  return guarded([&] {
    ++runs;
    const auto& body = *static_cast<ToyBody*>(self);
    if (body.toy->options.nests) {
      const auto inner = make_body(body.toy, body.units, run_second);
      lb_tensor* out = nullptr;
      check(body.units->run(body.units, body.toy->second, &inner, call->in, 1, &out, 1));
      discard(out);
    }
    const auto& x = tensor_of(call->in[0]);
    call->out[0] = give(at::gelu(at::linear(x, tensor_of(call->params[body.toy->w1]),
                                            tensor_of(call->params[body.toy->b1]))));
  });
}

template <bool kWrites, bool kNests>
lb_status* create(lb_state*, const lb_config*, lb_builder* builder, void** out) {
  return guarded([&] {
    auto toy = std::make_unique<Toy>();
    toy->options = {kWrites, kNests};
    const int64_t matrix[] = {4, 4};
    const int64_t vector[] = {4};
    const lb_param_spec w1 = {sizeof(lb_param_spec), LB_F32,          "w1", matrix, 2,
                              LB_PARAM_LINEAR,       "xavier_uniform"};
    const lb_param_spec b1 = {sizeof(lb_param_spec), LB_F32,          "b1", vector, 1,
                              LB_PARAM_NO_DECAY,     "normal(0, 0.1)"};
    const lb_param_spec w2 = {
        sizeof(lb_param_spec), LB_F32, "w2", matrix, 2, LB_PARAM_LINEAR | LB_PARAM_VIA_LINEAR,
        "xavier_uniform"};
    check(builder->param(builder, LB_ROOT, &w1, &toy->w1));
    check(builder->param(builder, LB_ROOT, &b1, &toy->b1));
    check(builder->unit(builder, "second", &toy->second));
    check(builder->param(builder, toy->second, &w2, &toy->w2));
    *out = toy.release();
  });
}

void destroy(void* self) { delete static_cast<Toy*>(self); }

lb_status* describe(void*, lb_batch* facts) {
  facts->put("width", 4.0);
  return nullptr;
}

lb_status* forward(void* self, const lb_units* units, const lb_batch* in, lb_batch* out) {
  return guarded([&] {
    const auto* toy = static_cast<Toy*>(self);
    lb_tensor* x[] = {lend(in->tensor("x"))};
    lb_tensor* hidden = nullptr;
    const auto first = make_body(toy, units, run_first);
    check(units->run(units, LB_ROOT, &first, x, 1, &hidden, 1));
    const auto owned = take(hidden);
    lb_tensor* middle[] = {lend(owned)};
    lb_tensor* y = nullptr;
    const auto second = make_body(toy, units, run_second);
    auto* status = units->run(units, toy->second, &second, middle, 1, &y, 1);
    if (status != nullptr && y != nullptr) {
      drop_status(status);
      throw Error(Fault::kInternal, "a unit that failed left an output behind");
    }
    check(status);
    out->put("y", take(y));
  });
}

template <bool kWrites, bool kNests>
const Component& component() {
  static const lb_model_vtable vtable = {
      sizeof(lb_model_vtable), 0, create<kWrites, kNests>, destroy, describe, forward, nullptr};
  static const char* const provides[] = {"test.toy/1", nullptr};
  static const lb_component table = {sizeof(lb_component),
                                     0,
                                     "limbeck.model/1",
                                     "toy",
                                     "A test network.",
                                     {sizeof(lb_option), 0, nullptr},
                                     provides,
                                     &vtable,
                                     nullptr};
  static const Library library = [] {
    static const lb_plugin plugin = [] {
      lb_plugin made{};
      made.id = "test.toy";
      return made;
    }();
    Library made;
    made.plugin = &plugin;
    return made;
  }();
  static const Component instance = {&table, &library};
  return instance;
}

}  // namespace

const Component& toy_component(const ToyOptions& options) {
  if (options.writes_input) {
    return component<true, false>();
  }
  return options.nests ? component<false, true>() : component<false, false>();
}

RoleSpec toy_spec(bool is_trained, const ToyOptions& options) {
  RoleSpec spec;
  spec.name = "net";
  spec.model.key = "models.net";
  spec.model.component = &toy_component(options);
  spec.model.config = std::make_shared<lb_config>();
  spec.is_trained = is_trained;
  spec.optimizer.learning_rate = 0.1;
  return spec;
}

int live_bodies() { return live; }
int take_body_runs() { return std::exchange(runs, 0); }

}  // namespace limbeck::testing
